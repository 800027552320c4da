// SPDX-License-Identifier: MIT
// Nothing of the system outlives a process, whatever a filter denies: programs start under filters that deny each
// system call in turn, and some more at random, with ENOSYS, EPERM or death; some are killed while they work.
// Afterwards segments, semaphores, queues, files in /tmp and /dev/shm, and locks are what they were. All in namespaces
// of its own, so that only these programs can have left something. The programs are this one, preloaded with the
// library of the variable QUARRY_TEST_LIBRARY.
#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/ipc.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "stats_page_read.h"

#define CALLS 470  // and some that no kernel has yet

enum { WORK_BYTES = 3 << 20 };
static unsigned runs = 600;

// ---- filters --------------------------------------------------------------------------------------------

typedef struct denied {
    int calls[12];
    unsigned count;
    uint32_t action;
} denied_t;

static void filter(const denied_t *d) {
    struct sock_filter code[16] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    unsigned n = 1;
    for (unsigned i = 0; i < d->count; i++)
        code[n++] = (struct sock_filter)BPF_JUMP(
            BPF_JMP | BPF_JEQ | BPF_K, (unsigned)d->calls[i], (unsigned char)(d->count - i), 0);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, d->action);
    struct sock_fprog program = {(unsigned short)n, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) _exit(77);
}

// The call whose turn it is, and often some more. To execute the program must be allowed.
static denied_t next_filter(unsigned turn, uint64_t *random) {
    static const uint32_t actions[] = {SECCOMP_RET_ERRNO | ENOSYS, SECCOMP_RET_ERRNO | EPERM, SECCOMP_RET_KILL_PROCESS};
    // Each call meets each action.
    denied_t d = {.calls = {(int)(turn % CALLS)}, .count = 1, .action = actions[(turn + turn / CALLS) % 3]};
    if (test_random(random) % 2) d.count += (unsigned)(test_random(random) % 10);
    for (unsigned i = 1; i < d.count; i++) d.calls[i] = (int)(test_random(random) % CALLS);
    for (unsigned i = 0; i < d.count; i++)
        if (d.calls[i] == SYS_execve) d.calls[i] = SYS_execveat;
    return d;
}

// ---- the program ----------------------------------------------------------------------------------------

static void *in_thread(void *unused) {
    for (int i = 0; i < 200; i++) free(memset(malloc((size_t)100 << i % 12), 1, 100));
    return unused;
}
static void work(void) {
    static void *block[WORK_BYTES / 1500];
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof block / sizeof *block; i++) block[i] = malloc(1500);
        for (size_t i = 0; i < sizeof block / sizeof *block; i++) free(block[i]);
    }
    free(calloc(1, 5 << 20));
    free(malloc(40 << 20));
    pthread_t thread;
    if (!pthread_create(&thread, NULL, in_thread, NULL)) pthread_join(thread, NULL);
}
// argv: "worker", when the filter comes ("start": before; "later"), what is denied
static int worker(char **argv) {
    denied_t d = {.action = (uint32_t)strtoul(argv[3], NULL, 10)};
    for (char **call = argv + 4; *call; call++) d.calls[d.count++] = atoi(*call);
    if (!strcmp(argv[2], "later")) {
        work();
        filter(&d);
    }
    work();
    pid_t child = fork();
    if (!child) {
        work();
        _exit(0);
    }
    if (child > 0) waitpid(child, NULL, 0);
    // What the helper thread does, too.
    struct timespec soon = {0, 15000000};
    nanosleep(&soon, NULL);
    work();
    return 0;
}
// Says 1 when it has worked under a filter that ends it for all calls but the promised ones, and waits for an answer.
static int strict_worker(void) {
    static const int allowed[] = {SYS_read, SYS_write, SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_madvise,
        SYS_futex, SYS_exit_group, SYS_exit};
    enum { COUNT = sizeof allowed / sizeof *allowed };
    struct sock_filter code[COUNT + 3] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    for (unsigned i = 0; i < COUNT; i++)
        code[1 + i] = (struct sock_filter)BPF_JUMP(
            BPF_JMP | BPF_JEQ | BPF_K, (unsigned)allowed[i], (unsigned char)(COUNT - i), 0);
    code[COUNT + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    code[COUNT + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {COUNT + 3, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) _exit(77);
    for (int i = 0; i < 20000; i++) free(malloc(100000));
    char byte = 1;
    if (write(1, &byte, 1) != 1 || read(0, &byte, 1) < 0) _exit(1);
    _exit(0);
}

// ---- what there is --------------------------------------------------------------------------------------

static char *append_file(char *to, const char *path, size_t most) {
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 ? 0 : read(fd, to, most);
    if (fd >= 0) close(fd);
    return to + (n > 0 ? n : 0);
}
static char *append_folder(char *to, const char *path) {
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (entry->d_name[0] != '.') to += sprintf(to, "%s/%s\n", path, entry->d_name);
    if (folder) closedir(folder);
    return to;
}
// The lock of an open file description names no process, so that those of the whole machine are shown. It ends with the
// last descriptor, as all programs of this namespace have.
static char *without_descriptions(char *from) {
    char *to = from;
    for (char *line = from, *next; *line; line = next) {
        next = line + strcspn(line, "\n");
        next += *next == '\n';
        char *found = strstr(line, "OFDLCK");
        if (found && found < next) continue;
        memmove(to, line, (size_t)(next - line));
        to += next - line;
    }
    *to = '\0';
    return to;
}
// Of the segments only how many and whose they are: the lists also say when.
static const char *what_there_is(char *text) {
    char *end = text;
    static const char *const files[] = {"/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg", "/proc/locks"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *locks = end;
        *(end = append_file(end, files[i], 60000)) = '\0';
        if (strstr(files[i], "locks")) end = without_descriptions(locks);
    }
    static const char *const folders[] = {"/tmp", "/dev/shm", "/dev/mqueue"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) end = append_folder(end, folders[i]);
    *end = '\0';
    return text;
}

// ---- the runs -------------------------------------------------------------------------------------------

static void execute(const denied_t *d, bool later, const char *conf) {
    static char self[512], library[600], options[200], action[16], call[12][8];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) _exit(76);
    snprintf(library, sizeof library, "LD_PRELOAD=%s", getenv("QUARRY_TEST_LIBRARY"));
    snprintf(options, sizeof options, "QUARRY_CONF=%s", conf);
    snprintf(action, sizeof action, "%u", d ? d->action : 0);
    char *argv[20] = {self, d ? "worker" : "strict", later ? "later" : "start", action},
         *env[] = {library, options, NULL};
    for (unsigned i = 0; d && i < d->count; i++) snprintf(argv[4 + i] = call[i], sizeof call[i], "%d", d->calls[i]);
    if (d && !later) filter(d);
    execve(self, argv, env);
    _exit(76);
}

// What the processes of this namespace do, but for the first: how much of a processor they have used, in ns, and
// whether one would use more if it got one.
static uint64_t used(bool *ret_busy) {
    uint64_t sum = 0;
    *ret_busy = false;
    DIR *all = opendir("/proc");
    for (struct dirent *entry; all && (entry = readdir(all));) {
        int pid = atoi(entry->d_name);
        if (pid < 2) continue;
        clockid_t clock;
        struct timespec t;
        if (!clock_getcpuclockid(pid, &clock) && !clock_gettime(clock, &t))
            sum += (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
        char path[300], text[600];
        snprintf(path, sizeof path, "/proc/%d/task", pid);
        DIR *threads = opendir(path);
        for (struct dirent *one; threads && (one = readdir(threads));) {
            if (one->d_name[0] == '.') continue;
            snprintf(path, sizeof path, "/proc/%d/task/%s/stat", pid, one->d_name);
            char *end = append_file(text, path, sizeof text - 1), *state;
            *end = '\0';
            state = strrchr(text, ')');
            *ret_busy |= state && (state[2] == 'R' || state[2] == 'D');
        }
        if (threads) closedir(threads);
    }
    if (all) closedir(all);
    return sum;
}
// A denied call may keep libc waiting for ever: then all are asleep and none uses a processor. That a machine is busy
// makes none of that. One that has used a second of a processor spins: it needs a fiftieth of that.
static void wait_unless_hung(int fd) {
    bool busy = true, was_busy = true;
    uint64_t before = 0, now = used(&was_busy);
    for (struct pollfd ends = {.fd = fd, .events = POLLIN}; poll(&ends, 1, 60) == 0; was_busy = busy) {
        before = now;
        now = used(&busy);
        if ((!busy && !was_busy && now == before) || now > UINT64_C(1000000000)) return;
    }
}

// In the namespaces, as their first process. Returns how many of the programs came to their end.
static unsigned run_all(void) {
    static char before[500000], after[500000];
    static const char *const confs[] = {"purge_delay:10", "purge_delay:10,purge_thread:off", "purge_delay:10,arenas:1"};
    uint64_t random = test_seed;
    unsigned whole = 0;
    what_there_is(before);
    for (unsigned run = 0; run < runs; run++) {
        denied_t d = next_filter(run, &random);
        bool later = test_random(&random) % 2, shoot = test_random(&random) % 4 == 0;
        const char *conf = confs[test_random(&random) % 3];
        pid_t pid = fork();
        if (!pid) {
            struct rlimit none = {0, 0};
            setrlimit(RLIMIT_CORE, &none);
            int quiet = open("/dev/null", O_RDWR);
            dup2(quiet, 1);
            dup2(quiet, 2);
            execute(&d, later, conf);
        }
        int fd = (int)syscall(SYS_pidfd_open, pid, 0);
        CHECK_GE(fd, 0);
        if (shoot) poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, (int)(test_random(&random) % 20));
        else wait_unless_hung(fd);
        close(fd);
        kill(-1, SIGKILL);  // all there are in this namespace, but the one that calls
        int status = 0;
        for (pid_t ended; (ended = waitpid(-1, &status, 0)) > 0;) {
            whole += ended == pid && status == 0;
            if (ended == pid && WIFEXITED(status) && WEXITSTATUS(status) == 76)
                TEST_FAIL("the program could not be executed");
        }
        if (run % 20 != 19 && run + 1 != runs) continue;
        what_there_is(after);
        size_t same = 0;
        while (before[same] && before[same] == after[same]) same++;
        if (before[same] != after[same])
            TEST_FAIL("by run %u (calls %d ..., action 0x%x, %s): %.200s where there was %.200s", run, d.calls[0],
                d.action, conf, after + same, before + same);
    }
    return whole;
}

static bool in_namespaces(void) {
    uid_t uid = getuid();
    if (unshare((uid ? CLONE_NEWUSER : 0) | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWPID)) return false;
    return true;
}
static bool mounts(void) {
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && mount("tmpfs", "/tmp", "tmpfs", 0, NULL) == 0 &&
           mount("tmpfs", "/dev/shm", "tmpfs", 0, NULL) == 0 && mount("proc", "/proc", "proc", 0, NULL) == 0;
}

// A child in namespaces of its own, whose first process runs `body`; false: there are none here.
static bool apart(void (*body)(void)) {
    fflush(stdout);
    int status = 0;
    pid_t pid = fork();
    if (!pid) {
        if (!in_namespaces()) _exit(77);
        pid_t first = fork();
        if (!first) {
            if (!mounts()) _exit(77);
            body();
            _exit(0);
        }
        _exit(first > 0 && waitpid(first, &status, 0) == first && WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) return false;
    if (status) TEST_FAIL("status 0x%x", (unsigned)status);
    return true;
}

static void all_filters(void) {
    unsigned whole = run_all();
    printf("%u runs, %u came to their end\n", runs, whole);
    fflush(stdout);
    CHECK_GT(whole, runs / 20);
}
TEST(starts_and_kills_under_any_filter_leave_nothing) {
    if (!apart(all_filters)) TEST_SKIP("needs namespaces: root, or user namespaces");
}

// That this test can fail: what a library might leave is seen.
static void leaves_something(void) {
    static char before[500000], after[500000];
    what_there_is(before);
    CHECK_STR_EQ(what_there_is(after), before);
    int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
    CHECK_NE(strcmp(what_there_is(after), before), 0);
    shmctl(id, IPC_RMID, NULL);
    close(open("/dev/shm/left", O_CREAT | O_RDWR, 0600));
    CHECK_NE(strcmp(what_there_is(after), before), 0);
    unlink("/dev/shm/left");
    CHECK_STR_EQ(what_there_is(after), before);
}
TEST(what_is_left_is_seen) {
    if (!apart(leaves_something)) TEST_SKIP("needs namespaces: root, or user namespaces");
}

// Nobody can deny it, since no call makes it: a program under a filter that ends it for any other than the promised
// calls is readable.
TEST(the_page_is_there_under_the_strictest_filter) {
    int up[2], down[2];
    CHECK(pipe(up) == 0 && pipe(down) == 0);
    pid_t pid = fork();
    if (!pid) {
        dup2(down[0], 0);
        dup2(up[1], 1);
        execute(NULL, false, "purge_thread:off");
    }
    close(up[1]);
    char byte;
    if (read(up[0], &byte, 1) != 1) {
        int status;
        waitpid(pid, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77) TEST_SKIP("needs seccomp");
        TEST_FAIL("it ended with 0x%x (signal 31 is the filter)", (unsigned)status);
    }
    quarry_stats_page_sums_t s;
    uintptr_t at = page_at(pid);
    CHECK(at);
    CHECK(page_sums_of(pid, at, &s));
    CHECK_GT(s.mapped_bytes, 1 << 20);
    CHECK_EQ(write(down[1], "", 1), 1);
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "worker")) return worker(argv);
    if (argc > 1 && !strcmp(argv[1], "strict")) return strict_worker();
    for (int i = 1; i < argc; i++)
        if (!strncmp(argv[i], "--runs=", 7)) runs = (unsigned)strtoul(argv[i] + 7, NULL, 10);
    return test_main(argc, argv);
}
