// SPDX-License-Identifier: MIT
// test_file.c: the file of a trace: blocks, windows, and a kernel that refuses.
#include <dirent.h>
#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "captured.h"
#include "os/fake.h"
#include "os/mapfile.h"
#include "trace/encode.h"
#include "trace/file.h"

static char path[64], folder[48];
static qy_trace_file_t file;

// A folder of our own, in which nothing else may be left.
static void name_it(void) {
    snprintf(folder, sizeof folder, "/tmp/trace_file.%d", (int)getpid());
    snprintf(path, sizeof path, "%s/a.qtr", folder);
    mkdir(folder, 0700);
    unlink(path);
}

static void remove_all(void) {
    unlink(path);
    if (rmdir(folder) != 0) TEST_FAIL("%s: %s", folder, strerror(errno));
}

static int create(void) {
    name_it();
    return qy_trace_file_create(&file, path, (int)getpid(), "{\"a\":1}", 7);
}

static uint64_t length(void) {
    struct stat st;
    CHECK_EQ(stat(path, &st), 0);
    return (uint64_t)st.st_size;
}

static void fill(qy_trace_block_t *b, size_t span, unsigned byte) {
    memset(b + 1, (int)byte, 1000);
    b->used = 1000;
    qy_trace_block_begin(b, QY_TRACE_EVENTS, span, 1);
    qy_trace_block_seal(b);
    qy_trace_block_unmap(b);
}

// Read the file from its start: blocks at multiples of the grain, or empty grains.
static unsigned read_back(unsigned *ret_events) {
    static unsigned char data[64 << 20];
    int fd = open(path, O_RDONLY);
    CHECK_GE(fd, 0);
    ssize_t n = read(fd, data, sizeof data);
    close(fd);
    unsigned ends = 0;
    *ret_events = 0;
    for (ssize_t at = 0; at < n;) {
        qy_trace_block_t b;
        memcpy(&b, data + at, sizeof b);
        if (!b.magic) {
            for (unsigned i = 0; i < file.grain; i++) CHECK_EQ(data[at + i], 0);
            at += file.grain;
            continue;
        }
        CHECK_EQ(b.magic, QY_TRACE_MAGIC);
        CHECK_EQ(b.flags, QY_TRACE_SEALED);
        CHECK_EQ(b.sum, qy_trace_sum(data + at + sizeof b, b.used));
        CHECK_LE(at + (ssize_t)b.span, n);
        ends += b.kind == QY_TRACE_END;
        *ret_events += b.kind == QY_TRACE_EVENTS;
        at += b.span;
    }
    return ends;
}

TEST(blocks_of_all_sizes) {
    unsigned events;
    CHECK_EQ(create(), 0);
    int error;
    size_t grain = file.grain, span, taken = 2 * grain;
    uint64_t state = test_seed;
    for (int i = 0; i < 500; i++) {
        size_t want = grain * (1 + test_random(&state) % 16),
               least = grain * (1 + test_random(&state) % (want / grain));
        qy_trace_block_t *b = qy_trace_file_take(&file, want, least, &span, &error);
        CHECK(b);
        CHECK(span >= least && span <= want && span % grain == 0);
        for (size_t k = 0; k < span; k += 8) CHECK_EQ(*(uint64_t *)(void *)((char *)b + k), 0);
        fill(b, span, (unsigned)i);
        taken += span;
    }
    qy_trace_file_end(&file, "{}", 2);
    qy_trace_file_end(&file, "{\"twice\":1}", 11);
    qy_trace_file_close(&file);
    CHECK_EQ(read_back(&events), 1);
    CHECK_EQ(events, 500);
    CHECK(length() >= taken && length() < taken + 16 * grain * 8);  // what did not fit at a window's end
    remove_all();
}

static int create_there(void) { return qy_trace_file_create(&file, path, 1, "{}", 2); }

TEST(exists) {
    CHECK_EQ(create(), 0);
    qy_trace_file_t second;
    CHECK_EQ(qy_trace_file_create(&second, path, 1, "{}", 2), -EEXIST);
    CHECK_EQ(access(path, F_OK), 0);
    qy_trace_file_forget(&file);
    CHECK_EQ(unlink(path), 0);
    CHECK_EQ(symlink("nowhere", path), 0);
    CHECK_EQ(create_there(), -EEXIST);
    remove_all();
}

// Each call fails once, or always from then on: the errors are told, nothing leaks, what was written is right.
static void refused(int persist) {
    static const uint32_t mask = 1u << QY_OS_OPEN | 1u << QY_OS_FILE_STAT | 1u << QY_OS_FILE_ALLOCATE |
                                 1u << QY_OS_RESERVE | 1u << QY_OS_FILE_MAP | 1u << QY_OS_POPULATE |
                                 1u << QY_OS_FILE_TRUNCATE | 1u << QY_OS_FILE_UNNAMED | 1u << QY_OS_FILE_RENAME |
                                 1u << QY_OS_FILE_LINK;
    for (uint64_t n = 1;; n++) {
        unsigned events = 0, filled = 0;
        name_it();
        quarry_os_fault(n, persist, mask);
        int error = create_there();
        if (error) {
            uint64_t hits = quarry_os_fault_hits();
            quarry_os_fault(0, 0, 0);
            CHECK(hits > 0);
            CHECK(access(path, F_OK) != 0);
            remove_all();
            continue;
        }
        for (int i = 0; i < 40; i++) {
            size_t span;
            qy_trace_block_t *b = qy_trace_file_take(&file, 64 * 1024, 4096, &span, &error);
            CHECK((b != NULL) == (error == 0));
            if (b) fill(b, span, 7), filled++;
        }
        qy_trace_file_end(&file, "{}", 2);
        qy_trace_file_close(&file);
        bool done = quarry_os_fault_hits() == 0;
        quarry_os_fault(0, 0, 0);
        CHECK_EQ(read_back(&events), 1);
        CHECK_EQ(events, filled);
        remove_all();
        if (done) {
            CHECK_GE(filled, 40);
            return;
        }
    }
}
TEST(refused_once) { refused(0); }
TEST(refused_for_good) { refused(1); }

TEST(limit_on_size) {
    struct rlimit old, limit;
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
    for (unsigned kib = 4; kib <= 400; kib += 4) {
        int error = 0;
        unsigned events = 0, filled = 0;
        limit = (struct rlimit){kib * 1024, old.rlim_max};
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
        if (create() == 0) {
            size_t span;
            for (qy_trace_block_t *b; (b = qy_trace_file_take(&file, 16 * file.grain, file.grain, &span, &error));)
                fill(b, span, 1), filled++;
            CHECK_EQ(error, -EFBIG);
            qy_trace_file_end(&file, "{}", 2);
            qy_trace_file_close(&file);
            CHECK_EQ(read_back(&events), 1);
            CHECK_EQ(events, filled);
            CHECK_LE(length(), kib * 1024);
            CHECK_GE(length() + file.grain, kib * 1024 / file.grain * file.grain);  // all the room was used
        } else CHECK_LT(kib * 1024, 2 * qy_os_page_size() + 1);
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
        remove_all();
    }
}

TEST(lost_descriptor) {
    size_t span;
    int error;
    for (int other = 0; other < 2; other++) {
        unsigned events;
        CHECK_EQ(create(), 0);
        CHECK_GE(file.fd, 3);
        close(file.fd);
        int fd = -1;
        if (other) {  // the number is another file's now
            fd = open("/dev/null", O_RDWR);
            CHECK_EQ(dup2(fd, file.fd), file.fd);
        }
        int filled = 0;
        for (int i = 0; i < 20; i++) {
            qy_trace_block_t *b = qy_trace_file_take(&file, 64 * 1024, 64 * 1024, &span, &error);
            CHECK(b);
            fill(b, span, 3), filled++;
        }
        qy_trace_file_end(&file, "{}", 2);
        qy_trace_file_close(&file);
        CHECK_EQ(read_back(&events), 1);
        CHECK_EQ(events, filled);
        if (fd >= 0) close(fd);
        remove_all();
        // Under no name it is lost; what is mapped, is there.
        CHECK_EQ(create(), 0);
        close(file.fd);
        unlink(path);
        while (qy_trace_file_take(&file, 64 * 1024, 64 * 1024, &span, &error)) {}
        CHECK_EQ(error, -EBADF);
        qy_trace_file_end(&file, "{}", 2);
        qy_trace_file_close(&file);
        remove_all();
    }
}

// ---- killed while it is made ----------------------------------------------------------------------------------------

#define STOPS_MOST 600

// A child that makes the file, and stops at each of its system calls, before and after. It is killed at the n-th stop.
// 0: it was; 1: it came to its end; -1: it cannot be stopped.
static int killed_at(int n, uint32_t refused) {
    pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(77);
        quarry_os_fault(1, 1, refused);
        raise(SIGSTOP);
        _exit(create_there() ? 1 : 0);
    }
    int status, signal = 0;
    for (int stops = -1; waitpid(pid, &status, 0) == pid && WIFSTOPPED(status);) {
        bool call = WSTOPSIG(status) == (SIGTRAP | 0x80);
        if (stops < 0) CHECK_EQ(ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)(uintptr_t)PTRACE_O_TRACESYSGOOD), 0);
        signal = call || stops < 0 ? 0 : WSTOPSIG(status);
        if (stops < 0 || call) stops++;
        if (stops == n) kill(pid, SIGKILL);
        else CHECK_EQ(ptrace(PTRACE_SYSCALL, pid, NULL, (void *)(uintptr_t)signal), 0);
    }
    if (WIFSIGNALED(status)) CHECK_EQ(WTERMSIG(status), SIGKILL);
    else if (WEXITSTATUS(status) == 77) return -1;
    else CHECK_EQ(WEXITSTATUS(status), 0);
    return WIFEXITED(status);
}

// The file has a head that says so; what is behind it is empty.
static void check_head(void) {
    struct {
        qy_trace_block_t head;
        char text[2];
    } begin = {0};
    int fd = open(path, O_RDONLY);
    CHECK_GE(fd, 0);
    CHECK_EQ(read(fd, &begin, sizeof begin.head + sizeof begin.text), (ssize_t)(sizeof begin.head + sizeof begin.text));
    close(fd);
    CHECK_EQ(begin.head.magic, QY_TRACE_MAGIC);
    CHECK_EQ(begin.head.kind, QY_TRACE_HEAD);
    CHECK_EQ(begin.head.used, 2);
    CHECK_EQ(begin.head.flags, QY_TRACE_SEALED);
    CHECK_EQ(begin.head.sum, qy_trace_sum(begin.text, 2));
}

// What is left besides the file; it is removed.
static int left_beside(void) {
    int left = 0;
    DIR *d = opendir(folder);
    CHECK(d);
    for (struct dirent *e; (e = readdir(d));) {
        char name[sizeof folder + sizeof e->d_name];
        if (strncmp(e->d_name, ".quarry-", 8) != 0) continue;
        snprintf(name, sizeof name, "%s/%s", folder, e->d_name);
        CHECK_EQ(unlink(name), 0);
        left++;
    }
    closedir(d);
    return left;
}

// All ways to give it its name, from the usual one to that of a file system that can do next to nothing.
static void killed_everywhere(uint32_t refused, bool is_whole, bool leaves) {
    int with = 0, without = 0, left = 0;
    name_it();
    for (int n = 1; n < STOPS_MOST; n++) {
        int end = killed_at(n, refused);
        if (end < 0) {
            printf("SKIP: needs the right to trace (ptrace)\n");
            remove_all();
            return;
        }
        bool exists = access(path, F_OK) == 0;
        left += left_beside();
        with += exists;
        without += !exists;
        if (exists && (is_whole || end)) check_head();
        remove_all();
        name_it();
        if (end) {
            CHECK(exists);
            CHECK_GE(without, 10);
            CHECK_GE(with, 2);
            CHECK_EQ(left > 0, leaves);
            remove_all();
            return;
        }
    }
    TEST_FAIL("%d system calls", STOPS_MOST);
}
TEST(killed_while_it_has_no_name) { killed_everywhere(0, true, false); }
TEST(killed_while_it_has_another_name) { killed_everywhere(1u << QY_OS_FILE_UNNAMED, true, true); }
TEST(killed_without_proc) { killed_everywhere(1u << QY_OS_FILE_LINK, true, true); }
TEST(killed_where_renaming_replaces) {
    killed_everywhere(1u << QY_OS_FILE_UNNAMED | 1u << QY_OS_FILE_RENAME, true, true);
}
TEST(killed_where_nothing_can_be_linked) {
    killed_everywhere(1u << QY_OS_FILE_UNNAMED | 1u << QY_OS_FILE_RENAME | 1u << QY_OS_FILE_LINK, false, true);
}

TEST_MAIN()
