// SPDX-License-Identifier: MIT
// test_alone.c: what a program sees of the heap's helper thread. A program of one thread has one, as long as nothing
// has waited for an epoch to be given back; and it has one when it looks after a fork, and when it calls what is
// refused to threads. Runs under the drop-in; an epoch is half a second.
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "api/family.h"
#include "captured.h"
#include "fault/rss.h"
#include "threads/rerun.h"

#define MIB ((size_t)1 << 20)

static void sleep_ms(unsigned ms) { usleep(ms * 1000); }

// How many threads there are. Without malloc, which on a slow machine may have a reason for one more by then.
static int threads_now(void) {
    char text[4096];
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    CHECK_GT(n, 0);
    close(fd);
    text[n] = '\0';
    char *at = strstr(text, "\nThreads:");
    CHECK(at);
    return atoi(at + 9);
}

// One that is not the first, or 0.
static int other_thread(void) {
    DIR *d = opendir("/proc/self/task");
    int other = 0;
    CHECK(d);
    for (struct dirent *e; (e = readdir(d));) {
        int id = atoi(e->d_name);
        if (id > 0 && id != getpid()) other = id;
    }
    closedir(d);
    return other;
}

// Of each kind of object.
static void use_and_free(size_t small, size_t large) {
    enum { MOST = 200000 };
    static char *p[MOST];
    size_t n = small / 1000;
    CHECK_LT(n, MOST);
    for (size_t i = 0; i < n; i++) {
        CHECK(p[i] = m.malloc(1000));
        memset(p[i], 1, 1000);
    }
    for (size_t i = 0; i < n; i++) m.free(p[i]);
    if (!large) return;
    char *q = m.malloc(large);
    CHECK(q);
    memset(q, 1, large);
    m.free(q);
}

// Until the helper is there: waste that stays, and a program that goes on freeing.
static int with_helper(void) {
    int other = 0;
    use_and_free(14 * MIB, 0);
    for (int i = 0; i < TEST_PATIENCE * 50 && !(other = other_thread()); i++) {
        sleep_ms(20);
        use_and_free(4 * MIB, 0);
    }
    if (!other) TEST_FAIL("no helper, and %.1f MiB", statm_mib(1));
    return other;
}

// With an epoch that does not end here, where the machine may be slow.
static void young(void) {
    use_and_free(60 * MIB, 60 * MIB);
    CHECK_EQ(threads_now(), 1);
    // Asleep it has given back all but 32 MiB of pages and as much in slabs, at most, without a helper (heap/purge.c).
    // How much of that there is depends on the machine's speed.
    sleep_ms(300);
    CHECK_EQ(threads_now(), 1);
    CHECK_LE(statm_mib(1), 70);
}
TEST(young_waste_is_no_reason) {
    char *argv[] = {NULL, (char *)"young", NULL};
    const char *conf = getenv("QUARRY_CONF");
    setenv("QUARRY_CONF", "purge_delay:600000", 1);
    rerun_t r = rerun(argv, 0);
    if (conf) setenv("QUARRY_CONF", conf, 1);
    else unsetenv("QUARRY_CONF");
    if (r.status) TEST_FAIL("%s: %.300s", rerun_end(&r), r.text);
}

// Another thread is there, so one more is nothing new.
static void *sleep_a_while(void *stop) {
    m.free(m.malloc(100));
    while (!*(_Atomic bool *)stop) usleep(1000);
    return NULL;
}
static void beside_a_thread(void *unused) {
    (void)unused;
    pthread_t t;
    static _Atomic bool stop;
    CHECK_EQ(pthread_create(&t, NULL, sleep_a_while, (void *)(uintptr_t)&stop), 0);
    sleep_ms(50);
    use_and_free(60 * MIB, 60 * MIB);
    TEST_AWAIT(statm_mib(1) <= 12);
    stop = true;
    pthread_join(t, NULL);
}
TEST(beside_threads_it_is_there_at_once) { run_apart(beside_a_thread, NULL); }

// Of a heap with holes nothing goes back at once.
static void holes(void *unused) {
    enum { COUNT = 400000 };
    static char *p[COUNT];
    (void)unused;
    for (int i = 0; i < COUNT; i++) {
        CHECK(p[i] = m.malloc(400));
        memset(p[i], 1, 400);
    }
    for (int i = 0; i < COUNT; i++)
        if (i % 64) m.free(p[i]);
    TEST_AWAIT(statm_mib(1) <= 80);
}
TEST(many_holes_are_a_reason) { run_apart(holes, NULL); }

static void forks(void *unused) {
    (void)unused;
    with_helper();
    for (int i = 0; i < 20; i++) {
        pid_t pid = fork();
        CHECK_GE(pid, 0);
        if (pid == 0) _exit(threads_now());
        TEST_AWAIT(threads_now() == 1);  // the kernel counts one that has ended for a moment longer
        int status;
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK_EQ(status, 1 << 8);
        if (i % 4 == 3) with_helper();
    }
    // What is left is still given back.
    with_helper();
    TEST_AWAIT(statm_mib(1) <= 20 && threads_now() == 1);
}
TEST(not_seen_after_a_fork) { run_apart(forks, NULL); }

static void new_user(void *unused) {
    (void)unused;
    if (unshare(CLONE_FS) != 0) _exit(1);
    with_helper();
    CHECK_EQ(unshare(CLONE_NEWUSER), 0);
    CHECK_EQ(threads_now(), 1);
    with_helper();
}
TEST(unshare_is_not_refused) {
    pid_t pid = fork();
    if (pid == 0) _exit(unshare(CLONE_NEWUSER) == 0 ? 0 : 77);
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    if (status) TEST_SKIP("needs user namespaces");
    run_apart(new_user, NULL);
}

// A mount namespace of another process, and a user namespace. Errors are libc's.
static void join(void *unused) {
    (void)unused;
    with_helper();
    CHECK(setns(-1, 0) == -1 && errno == EBADF && unshare(0x10000000 - 1) == -1 && errno == EINVAL);
    int go[2];
    char path[64];
    CHECK_EQ(pipe(go), 0);
    pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (pid == 0) {
        char c = (char)(unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0);
        if (write(go[1], &c, 1) == 1) pause();
        _exit(0);
    }
    char c = 0;
    CHECK(read(go[0], &c, 1) == 1 && c == 1);
    static const char *const kind[] = {"user", "mnt"};
    for (int i = 0; i < 2; i++) {
        with_helper();
        snprintf(path, sizeof path, "/proc/%d/ns/%s", pid, kind[i]);
        int fd = open(path, O_RDONLY);
        CHECK_GE(fd, 0);
        if (setns(fd, 0) != 0) TEST_FAIL("setns to a %s namespace: %s", kind[i], strerror(errno));
        close(fd);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}
TEST(setns_is_not_refused) {
    pid_t pid = fork();
    if (pid == 0) _exit(unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 ? 0 : 77);
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    if (status) TEST_SKIP("needs namespaces: root, or user namespaces");
    run_apart(join, NULL);
}

// It is nobody's in particular: not of the starter's scheduling, processors or signals.
static void nobodys(void *unused) {
    (void)unused;
    cpu_set_t all, one, its;
    int nice_before = getpriority(PRIO_PROCESS, 0);
    long policy_before = syscall(SYS_sched_getscheduler, 0);
    CHECK_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    struct sched_param high = {.sched_priority = 20};
    bool fifo = syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &high) == 0;
    int it = with_helper();
    // It makes itself so, when it first gets a processor.
    TEST_AWAIT(syscall(SYS_sched_getscheduler, it) == (fifo || policy_before != SCHED_IDLE ? SCHED_BATCH : SCHED_IDLE));
    TEST_AWAIT(sched_getaffinity(it, sizeof its, &its) == 0 && CPU_COUNT(&its) == CPU_COUNT(&all));
    TEST_AWAIT(getpriority(PRIO_PROCESS, (id_t)it) >= 10);
    CHECK_EQ(syscall(SYS_sched_getscheduler, 0), fifo ? SCHED_FIFO : policy_before);
    CHECK_EQ(getpriority(PRIO_PROCESS, 0), nice_before);
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/status", it);
    FILE *f = fopen(path, "r");
    CHECK(f);
    while (fgets(line, sizeof line, f) && strncmp(line, "SigBlk:", 7) != 0) {}
    fclose(f);
    // all but SIGKILL and SIGSTOP
    CHECK(strstr(line, "SigBlk:\tfffffffffffbfeff") || strstr(line, "SigBlk:\tfffffffe7ffbfeff"));
}
TEST(it_inherits_nothing) { run_apart(nobodys, NULL); }

int main(int argc, char **argv) {
    if (argc != 2 || strcmp(argv[1], "young")) return test_main(argc, argv);
    young();
    return 0;
}
