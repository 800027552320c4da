// SPDX-License-Identifier: MIT
// test_pages_advice.c: advice on pages: what the kernel shows of it afterwards, and what it refuses.
#include <fcntl.h>
#include <quarry/pages.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "os/fake.h"
#include "os/os.h"

#define PAGES ((size_t)16)

static size_t page;

// The line "NAME:" of the mapping of /proc/self/smaps that begins at `at`. False: there is none.
static bool smaps_line(const void *at, const char *name, char *ret, size_t bytes) {
    FILE *file = fopen("/proc/self/smaps", "re");
    char line[512];
    bool here = false, found = false;
    while (file && !found && fgets(line, sizeof line, file)) {
        unsigned long a, b;
        if (sscanf(line, "%lx-%lx ", &a, &b) == 2) here = a == (uintptr_t)at;
        else if (here && !strncmp(line, name, strlen(name)) && line[strlen(name)] == ':') {
            snprintf(ret, bytes, "%s", line + strlen(name) + 1);
            found = true;
        }
    }
    if (file) fclose(file);
    return found;
}
// Does the mapping have this word in VmFlags? -1: the kernel does not show them.
static int has_flag(const void *at, const char *flag) {
    char line[512], word[8];
    if (!smaps_line(at, "VmFlags", line, sizeof line)) return -1;
    snprintf(word, sizeof word, " %s ", flag);
    return strstr(line, word) != NULL;
}
static long smaps_kib(const void *at, const char *name) {
    char line[512];
    return smaps_line(at, name, line, sizeof line) ? strtol(line, NULL, 10) : -1;
}
static size_t resident(void *p, size_t pages) {
    unsigned char there[64];
    size_t n = 0;
    CHECK_LE(pages, sizeof there);
    CHECK_EQ(mincore(p, pages * page, there), 0);
    for (size_t i = 0; i < pages; i++) n += there[i] & 1;
    return n;
}

// A mapping of its own: pages without access lie around it, so that the kernel joins it with no other.
static char *apart(int flags, int fd) {
    char *p = mmap(NULL, (PAGES + 2) * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    void *q = mmap(p + page, PAGES * page, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0);
    CHECK_PTR_EQ(q, p + page);
    return q;
}
static void end(char *p) { CHECK_EQ(quarry_unmap(p - page, (PAGES + 2) * page), 0); }
static char *anonymous(void) { return apart(MAP_PRIVATE | MAP_ANONYMOUS, -1); }

static bool all_are(const char *p, size_t bytes, char byte) {
    for (size_t i = 0; i < bytes; i++)
        if (p[i] != byte) return false;
    return true;
}

// Emulators of processors answer 0 to advice and do nothing.
static bool kernel_listens(void) {
    page = qy_os_page_size();
    char *p = anonymous();
    p[0] = 1;
    bool listens = quarry_advise(p, page, QUARRY_ADVICE_DROP) == 0 && p[0] == 0;
    end(p);
    return listens;
}
#define NEEDS_A_KERNEL() \
    if (!kernel_listens()) TEST_SKIP("needs a kernel that takes advice: an emulated one does not")

// Of these the kernel shows a flag.
TEST(flags_come_and_go) {
    static const struct {
        quarry_advice_t on, off;
        const char *flag;
        bool optional;  // left out of some kernels
    } cases[] = {
        {QUARRY_ADVICE_SEQUENTIAL, QUARRY_ADVICE_NORMAL, "sr", false},
        {QUARRY_ADVICE_RANDOM, QUARRY_ADVICE_NORMAL, "rr", false},
        {QUARRY_ADVICE_NO_DUMP, QUARRY_ADVICE_DUMP, "dd", false},
        {QUARRY_ADVICE_NO_FORK, QUARRY_ADVICE_FORK, "dc", false},
        {QUARRY_ADVICE_WIPE_ON_FORK, QUARRY_ADVICE_KEEP_ON_FORK, "wf", false},
        {QUARRY_ADVICE_HUGE, QUARRY_ADVICE_NO_HUGE, "hg", true},
        {QUARRY_ADVICE_NO_HUGE, QUARRY_ADVICE_HUGE, "nh", true},
        {QUARRY_ADVICE_MERGE, QUARRY_ADVICE_NO_MERGE, "mg", true},
    };
    NEEDS_A_KERNEL();
    char *p = anonymous();
    if (has_flag(p, "rd") != 1) TEST_SKIP("needs a kernel with CONFIG_PROC_PAGE_MONITOR: smaps has no VmFlags here");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_EQ(has_flag(p, cases[i].flag), 0);
        if (quarry_advise(p, PAGES * page, cases[i].on)) {
            CHECK_EQ(errno, ENOTSUP);
            CHECK(cases[i].optional);
            continue;
        }
        CHECK_EQ(has_flag(p, cases[i].flag), 1);
        CHECK_EQ(quarry_advise(p, PAGES * page, cases[i].off), 0);
        CHECK_EQ(has_flag(p, cases[i].flag), 0);
        end(p);
        p = anonymous();
    }
    end(p);
}

TEST(dropped_pages_are_gone_and_the_mapping_stays) {
    NEEDS_A_KERNEL();
    char *p = anonymous();
    memset(p, 'x', PAGES * page);
    CHECK_EQ(resident(p, PAGES), PAGES);
    // Bytes are rounded up: of a page and a byte two pages go.
    CHECK_EQ(quarry_advise(p + page, page + 1, QUARRY_ADVICE_DROP), 0);
    CHECK_EQ(resident(p, PAGES), PAGES - 2);
    CHECK(all_are(p + page, 2 * page, 0) && all_are(p, page, 'x') && all_are(p + 3 * page, (PAGES - 3) * page, 'x'));
    p[page] = 'y';
    CHECK_EQ(p[page], 'y');
    end(p);
}

TEST(freed_pages_read_as_they_were_or_as_zero) {
    NEEDS_A_KERNEL();
    char *p = anonymous();
    memset(p, 'x', PAGES * page);
    CHECK_EQ(quarry_advise(p, PAGES * page, QUARRY_ADVICE_FREE), 0);
    CHECK_LE(smaps_kib(p, "Private_Dirty"), 0);  // nobody has to keep them: neither swap nor a file
    for (size_t i = 0; i < PAGES; i++) CHECK(all_are(p + i * page, page, 'x') || all_are(p + i * page, page, 0));
    memset(p, 'z', PAGES * page);  // a store takes the page back
    CHECK(all_are(p, PAGES * page, 'z'));
    CHECK_EQ(resident(p, PAGES), PAGES);
    end(p);
}

TEST(populated_pages_are_there) {
    NEEDS_A_KERNEL();
    char *p = anonymous();
    if (quarry_advise(p, PAGES * page / 2, QUARRY_ADVICE_POPULATE)) {
        CHECK_EQ(errno, ENOTSUP);
        end(p);
        TEST_SKIP("needs Linux 5.14");
    }
    CHECK_EQ(resident(p, PAGES / 2), PAGES / 2);
    long before = smaps_kib(p, "Anonymous");
    CHECK_EQ(quarry_advise(p + PAGES / 2 * page, PAGES / 2 * page, QUARRY_ADVICE_POPULATE_READ), 0);
    CHECK_EQ(smaps_kib(p, "Anonymous"), before);  // to be read there is the page of zeros, which is nobody's
    CHECK(all_are(p, PAGES * page, 0));
    end(p);
}

TEST(cold_and_paged_out_pages_keep_their_contents) {
    NEEDS_A_KERNEL();
    char *p = anonymous();
    memset(p, 'x', PAGES * page);
    if (quarry_advise(p, PAGES * page, QUARRY_ADVICE_COLD)) {
        CHECK_EQ(errno, ENOTSUP);
        end(p);
        TEST_SKIP("needs Linux 5.4");
    }
    CHECK_EQ(quarry_advise(p, PAGES * page, QUARRY_ADVICE_PAGE_OUT), 0);
    CHECK(all_are(p, PAGES * page, 'x'));
    end(p);
}

// Of a file: its pages come in, go to the file, and are dropped with what only this process wrote.
TEST(pages_of_a_file) {
    NEEDS_A_KERNEL();
    char path[] = "/tmp/quarry-advice-XXXXXX";
    int fd = mkstemp(path);
    CHECK_GE(fd, 0);
    unlink(path);
    for (size_t i = 0; i < PAGES; i++) {
        char block[65536];
        memset(block, 'a' + (int)i, sizeof block);
        for (size_t at = 0; at < page; at += 4096) CHECK_EQ(write(fd, block, 4096), 4096);
    }
    CHECK_EQ(fsync(fd), 0);
    char *p = apart(MAP_PRIVATE, fd);
    CHECK_EQ(quarry_advise(p, PAGES * page, QUARRY_ADVICE_SEQUENTIAL), 0);
    CHECK_EQ(quarry_advise(p, PAGES * page, QUARRY_ADVICE_WILL_NEED), 0);
    if (quarry_advise(p, PAGES * page, QUARRY_ADVICE_POPULATE_READ) == 0) CHECK_EQ(resident(p, PAGES), PAGES);
    p[0] = 'A';
    CHECK_EQ(quarry_advise(p, page, QUARRY_ADVICE_DROP), 0);
    CHECK_EQ(p[0], 'a');
    CHECK_EQ(quarry_advise(p, page, QUARRY_ADVICE_FREE), -1);
    CHECK_EQ(errno, EINVAL);
    CHECK_EQ(quarry_advise(p, page, QUARRY_ADVICE_REMOVE), -1);
    CHECK(errno == EINVAL || errno == EACCES);
    end(p);
    // Behind the end of the file there is nothing to be had.
    CHECK_EQ(ftruncate(fd, (off_t)(2 * page)), 0);
    p = apart(MAP_SHARED, fd);
    if (quarry_advise(p, PAGES * page, QUARRY_ADVICE_POPULATE_READ)) CHECK(errno == EFAULT || errno == ENOTSUP);
    CHECK_EQ(quarry_advise(p, page, QUARRY_ADVICE_DROP), 0);
    CHECK_EQ(p[0], 'a');  // shared: the file keeps it
    end(p);
    close(fd);
}

TEST(shared_memory_can_be_emptied_for_all) {
    NEEDS_A_KERNEL();
    char *p = apart(MAP_SHARED | MAP_ANONYMOUS, -1);
    memset(p, 'x', PAGES * page);
    CHECK_EQ(quarry_advise(p, page, QUARRY_ADVICE_DROP), 0);
    CHECK(all_are(p, page, 'x'));
    CHECK_EQ(quarry_advise(p, page, QUARRY_ADVICE_REMOVE), 0);
    CHECK(all_are(p, page, 0) && all_are(p + page, (PAGES - 1) * page, 'x'));
    end(p);
}

TEST(a_fork_sees_what_it_may) {
    NEEDS_A_KERNEL();
    char *p = anonymous();
    int status;
    memset(p, 'x', PAGES * page);
    CHECK_EQ(quarry_advise(p, page, QUARRY_ADVICE_WIPE_ON_FORK), 0);
    pid_t pid = fork();
    if (pid == 0) _exit(p[0] == 0 && p[page] == 'x' ? 7 : 1);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7 && p[0] == 'x');
    end(p);
}

// A block of a pool is whole pages where the pool says so.
TEST(runs_of_a_pages_pool) {
    NEEDS_A_KERNEL();
    quarry_pool_t *pages = quarry_pages_create(NULL);
    CHECK(pages);
    char *run = quarry_pool_alloc(pages, PAGES * page, page, 0);
    CHECK(run);
    memset(run, 'x', PAGES * page);
    CHECK_EQ(quarry_advise(run, PAGES * page, QUARRY_ADVICE_DROP), 0);
    CHECK(all_are(run, PAGES * page, 0));
    quarry_pool_free(pages, run, PAGES * page);
    CHECK(!quarry_pool_check(pages));
    char *again = quarry_pool_alloc(pages, PAGES * page, page, QUARRY_POOL_ZERO);
    CHECK(again && all_are(again, PAGES * page, 0));
    quarry_pool_destroy(pages);
}

static void refused(void *addr, size_t bytes, int advice, int why) {
    errno = 0;
    CHECK_EQ(quarry_advise(addr, bytes, (quarry_advice_t)advice), -1);
    CHECK_EQ(errno, why);
}
TEST(refusals) {
    NEEDS_A_KERNEL();
    char *p = anonymous();
    refused(p + 1, page, QUARRY_ADVICE_DROP, EINVAL);
    refused(p + page / 2, page, QUARRY_ADVICE_COLD, EINVAL);
    refused(p, 0, QUARRY_ADVICE_NORMAL, EINVAL);
    refused(p, SIZE_MAX, QUARRY_ADVICE_NORMAL, EINVAL);
    refused(p, page, QUARRY_ADVICE_KEEP_ON_FORK + 1, EINVAL);
    refused(p, page, -1, EINVAL);
    CHECK_EQ(quarry_unmap(p + 2 * page, page), 0);
    refused(p, PAGES * page, QUARRY_ADVICE_NORMAL, ENOMEM);
    refused(p + 2 * page, page, QUARRY_ADVICE_DROP, ENOMEM);
    // By their numbers: the functions do nothing under sanitizers.
    if (syscall(SYS_mlock, p, page) == 0) {
        refused(p, page, QUARRY_ADVICE_DROP, EINVAL);
        CHECK_EQ(syscall(SYS_munlock, p, page), 0);
    }
    errno = 0;
    CHECK_EQ(quarry_advise(p, page, QUARRY_ADVICE_NORMAL), 0);
    CHECK_EQ(errno, 0);
    quarry_os_fault(1, 0, 1u << QY_OS_ADVISE);
    refused(p, page, QUARRY_ADVICE_NORMAL, ENOMEM);
    quarry_os_fault(0, 0, 0);
    end(p);
}

TEST_MAIN()
