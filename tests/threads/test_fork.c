// SPDX-License-Identifier: MIT
// fork while other threads are in the middle of malloc: both sides go on. --forks=N.
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include "api/family.h"

static long forks = 200;
extern char **environ;

// A hang is a failure that says where it was.
static void on_alarm(int sig) {
    (void)sig;
    static const char message[] = "FAILED: hangs\n";
    if (write(2, message, sizeof message - 1) < 0) {}
    _exit(1);
}

// So long since the last sign of life: what many forks take together depends on the machine.
static void watch(void) { alarm(TEST_PATIENCE); }

static _Atomic int stop;
static void *churn(void *arg) {
    uint64_t random = (uint64_t)(uintptr_t)arg + 1;
    void *p[100] = {0};
    while (!stop) {
        size_t k = test_random(&random) % 100, bits = test_random(&random) % 64 ? test_random(&random) % 15 : 21;
        m.free(p[k]);
        p[k] = test_random(&random) % 8 ? m.malloc((size_t)1 << bits) : m.calloc(1, (size_t)1 << bits);
        CHECK(p[k] != NULL);
        *(volatile char *)p[k] = 1;
        if (test_random(&random) % 2000 == 0) m.trim(0);
    }
    for (int k = 0; k < 100; k++) m.free(p[k]);
    return NULL;
}

// Blocks that the forking thread owns, and of every other thread some that lie around.
enum { OURS = 300 };
static struct {
    unsigned char *p;
    size_t n;
} ours[OURS];

static void refill(uint64_t *random) {
    for (int i = 0; i < OURS; i++) {
        if (ours[i].p) {
            CHECK_EQ(pattern_differs(ours[i].p, 0, ours[i].n < 64 ? ours[i].n : 64, (uint64_t)i),
                ours[i].n < 64 ? ours[i].n : 64);
            m.free(ours[i].p);
        }
        ours[i].n = (size_t)1 << test_random(random) % 18;
        ours[i].p = m.malloc(ours[i].n);
        CHECK(ours[i].p != NULL);
        pattern_fill(ours[i].p, 0, ours[i].n < 64 ? ours[i].n : 64, (uint64_t)i);
    }
}

static void *in_child(void *arg) {
    uint64_t random = (uint64_t)(uintptr_t)arg;
    for (int i = 0; i < 300; i++) {
        void *p = m.malloc((size_t)1 << test_random(&random) % 18);
        CHECK(p != NULL);
        *(volatile char *)p = 1;
        m.free(p);
    }
    return NULL;
}

static void child(long round) {
    alarm(TEST_PATIENCE);
    uint64_t random = (uint64_t)round + 1;
    refill(&random);  // frees what the parent allocated
    if (round % 4 == 0) {
        pthread_t thread[3];
        for (int i = 0; i < 3; i++)
            CHECK_EQ(pthread_create(&thread[i], NULL, in_child, (void *)(uintptr_t)(round + i)), 0);
        in_child((void *)(uintptr_t)round);
        for (int i = 0; i < 3; i++) pthread_join(thread[i], NULL);
    }
    if (round % 8 == 1) {
        pid_t pid = fork();  // a grandchild
        CHECK_GE(pid, 0);
        if (pid == 0) {
            refill(&random);
            _exit(0);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    }
    m.trim(0);
    refill(&random);
}

static void fork_once(long round) {
    watch();
    fflush(stdout);
    pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (pid == 0) {
        child(round);
        _exit(33);
    }
    uint64_t random = (uint64_t)round + 1000;
    refill(&random);
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    if (status != 33 << 8) TEST_FAIL("the child of fork %ld ended with 0x%x", round, (unsigned)status);
}

static void with_threads(int count, void (*body)(void)) {
    pthread_t thread[8];
    signal(SIGALRM, on_alarm);
    watch();
    stop = 0;
    for (int i = 0; i < count; i++) CHECK_EQ(pthread_create(&thread[i], NULL, churn, (void *)(uintptr_t)i), 0);
    body();
    stop = 1;
    for (int i = 0; i < count; i++) pthread_join(thread[i], NULL);
    alarm(0);
}

static void fork_many(void) {
    for (long i = 0; i < forks; i++) fork_once(i);
}
TEST(from_a_busy_process) {
    if (FAMILY_SANITIZED) TEST_SKIP("needs a build without sanitizers: they do not survive the fork of a busy process");
    with_threads(3, fork_many);
}
TEST(from_a_single_thread) { with_threads(0, fork_many); }

// Two threads fork at the same time.
static void *fork_here(void *arg) {
    for (long i = 0; i < forks / 4; i++) {
        watch();
        pid_t pid = fork();
        CHECK_GE(pid, 0);
        if (pid == 0) {
            alarm(TEST_PATIENCE);
            in_child(arg);
            _exit(33);
        }
        in_child(arg);
        int status;
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK_EQ(status, 33 << 8);
    }
    return NULL;
}
static void fork_from_two(void) {
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) CHECK_EQ(pthread_create(&thread[i], NULL, fork_here, (void *)(uintptr_t)(i + 1)), 0);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
}
TEST(from_two_threads) {
    if (FAMILY_SANITIZED) TEST_SKIP("needs a build without sanitizers: they do not survive the fork of a busy process");
    with_threads(2, fork_from_two);
}

// ---- the handlers of others ---------------------------------------------------------------------------

// They allocate, in each phase; some free in the child what was allocated before the fork. Those
// registered before main (below) run inside of the heap's own handlers or outside, as it happens.
static __thread void *kept[2][3];  // two threads may fork at the same time
static _Atomic int handler_calls;
static void allocate(int which, int phase) {
    handler_calls++;
    for (int i = 0; i < 200; i++) {
        m.free(kept[which][phase]);
        kept[which][phase] = m.malloc((size_t)1 << i % 18);
        CHECK(kept[which][phase] != NULL);
        *(volatile char *)kept[which][phase] = 1;
    }
}
static void early_prepare(void) { allocate(0, 0); }
static void early_parent(void) { allocate(0, 1); }
static void (*more_in_early_child)(void);
static void early_child(void) {
    allocate(0, 2);
    if (more_in_early_child) more_in_early_child();
}
static void late_prepare(void) { allocate(1, 0); }
static void late_parent(void) { allocate(1, 1); }
static void late_child(void) { allocate(1, 2); }

__attribute__((constructor(101))) static void register_early(void) {
    pthread_atfork(early_prepare, early_parent, early_child);
}

TEST(handlers_allocate) {
    if (FAMILY_SANITIZED) TEST_SKIP("needs a build without sanitizers: they do not survive the fork of a busy process");
    m.free(m.malloc(10));
    CHECK_EQ(pthread_atfork(late_prepare, late_parent, late_child), 0);
    handler_calls = 0;
    with_threads(2, fork_many);
    CHECK_EQ(handler_calls, 4 * forks);
}

// What is given back is given back by one thread of the heap's own; also where a handler in the child frees before the
// heap's has run.
static int threads_here(void) {
    int n = 0;
    DIR *dir = opendir("/proc/self/task");
    CHECK(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir));) n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}
static void waste(void) {
    enum { COUNT = 64,
        SIZE = 256 << 10 };
    static char *block[COUNT];
    for (int i = 0; i < COUNT; i++) {
        CHECK((block[i] = m.malloc(SIZE)) != NULL);
        memset(block[i], 1, SIZE);
    }
    for (int i = 0; i < COUNT; i++) m.free(block[i]);
}
static void in_own_process(void (*body)(void)) {
    watch();
    int status;
    pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (pid == 0) {
        body();
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}
static void count_threads(void) {
    more_in_early_child = NULL;
    waste();
    usleep(20000);  // it may be on its way
    CHECK_LE(threads_here(), 2);
}
static void without_thread(void) {
    m.trim(0);
    while (threads_here() > 1) usleep(50000);
    more_in_early_child = waste;
    in_own_process(count_threads);
}
TEST(one_thread_purges_the_child) {
    if (FAMILY_SANITIZED) TEST_SKIP("needs a build without sanitizers: there the heap has no thread");
    signal(SIGALRM, on_alarm);
    in_own_process(without_thread);
    alarm(0);
}

// ---- the child's memory is the parent's -------------------------------------------------------------------

// Kilobytes written since the fork, by the kernel's count; -1: it does not say.
static long written_kib(void) {
    char text[2048];
    int fd = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *at = strstr(text, "Private_Dirty:");
    return at ? atol(at + 14) : -1;
}
// Of each heap that a thread had before this test the child writes to a page; and its statistics page is its own
// memory. With the sampler on there are pages for that, too, however many blocks were sampled.
static long may_write_kib(void) {
    const char *conf = getenv("QUARRY_CONF");
    return conf && strstr(conf, "sample:") ? 768 : 384;
}
TEST(child_copies_little) {
    if (FAMILY_SANITIZED) TEST_SKIP("needs a build without sanitizers: they write to memory of their own");
    enum { COUNT = 30000,
        SIZE = 2000 };
    static char *block[COUNT];
    for (int i = 0; i < COUNT; i++) {
        CHECK((block[i] = m.malloc(SIZE)) != NULL);
        memset(block[i], 1, SIZE);
    }
    CHECK_GT(written_kib(), COUNT / 1024 * SIZE);
    int status;
    pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (pid == 0) _exit(written_kib() < may_write_kib() ? 0 : (int)(written_kib() / 1024) + 1);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    if (status)
        TEST_FAIL("a child that did nothing yet has written to more than %ld KiB (%d MiB)", may_write_kib(),
            WEXITSTATUS(status) - 1);
    for (int i = 0; i < COUNT; i++) m.free(block[i]);
}

// ---- without fork handlers: vfork, posix_spawn, popen, system ---------------------------------------------

static void wait_for(pid_t pid) {
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}
__attribute__((noinline)) static pid_t by_vfork(char **argv) {
    pid_t pid = vfork();
    if (pid == 0) {
        execve(argv[0], argv, environ);
        _exit(1);
    }
    return pid;
}
static void spawn_many(void) {
    for (long i = 0; i < forks / 2; i++) {
        static char *argv[] = {(char *)"/bin/true", NULL};
        pid_t pid;
        CHECK_EQ(posix_spawn(&pid, argv[0], NULL, NULL, argv, environ), 0);
        in_child((void *)(uintptr_t)i);
        wait_for(pid);
        pid = by_vfork(argv);
        CHECK_GE(pid, 0);
        in_child((void *)(uintptr_t)i);
        wait_for(pid);
        if (i % 10) continue;
        FILE *f = popen("echo hello", "r");
        char line[20] = "";
        CHECK(f && fgets(line, sizeof line, f));
        CHECK_STR_EQ(line, "hello\n");
        CHECK_EQ(pclose(f), 0);
        CHECK_EQ(system("exit 7"), 7 << 8);
    }
}
TEST(spawn) { with_threads(2, spawn_many); }

int main(int argc, char **argv) {
#ifndef __GLIBC__
    unsetenv("LD_PRELOAD");  // the programs that it starts are the system's, and of glibc
#endif
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--forks=", 8)) forks = atol(argv[i] + 8);
    }
    return test_main(argc, argv);
}
