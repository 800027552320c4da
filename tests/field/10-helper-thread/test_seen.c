// SPDX-License-Identifier: MIT
// What a program can see of threads that an allocator makes: their number, how they are scheduled, and what the kernel
// refuses because of them.
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>

#include "field.h"

// 60 MB of small blocks and one of 60 MiB, used and freed: something to give back.
static void churn(void) {
    many(1000, 60000);
    char *p = malloc((size_t)60 << 20);
    free(memset(p, 1, (size_t)60 << 20));
}
static int other_task(void) {
    DIR *d = opendir("/proc/self/task");
    int other = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] != '.' && atoi(e->d_name) != getpid()) other = atoi(e->d_name);
    }
    if (d) closedir(d);
    return other;
}
// At once, and while a program that has given up its memory goes on with small things: for half a second, after which
// there may be reasons.
TEST(one_task) {
    double begin = now_ms();
    churn();
    for (int i = 0; i < 30; i++) {
        int other = other_task();
        if (now_ms() - begin > 400) return;
        if (other) TEST_FAIL("a second task after %d ms", i * 10);
        for (int k = 0; k < 1000; k++) free(opaque(malloc((size_t)k)));
        usleep(10000);
    }
}
static void checks_task(int task) {
    cpu_set_t set;
    if (!task) return;
    CHECK_EQ(sched_getscheduler(task), SCHED_OTHER);
    CPU_ZERO(&set);
    CHECK_EQ(sched_getaffinity(task, sizeof set, &set), 0);
    if (sysconf(_SC_NPROCESSORS_ONLN) > 1) CHECK_GT(CPU_COUNT(&set), 1);
    CHECK_GE(getpriority(PRIO_PROCESS, (id_t)task), 0);
}
TEST(does_not_inherit) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    struct sched_param priority = {20};
    if (sched_setscheduler(0, SCHED_FIFO, &priority))
        TEST_SKIP("needs real-time priority: RLIMIT_RTPRIO, or CAP_SYS_NICE");
    churn();
    for (int i = 0; i < 20; i++) {
        checks_task(other_task());
        usleep(20000);
    }
}
TEST(does_not_inherit_niceness) {
    if (setpriority(PRIO_PROCESS, 0, -10)) TEST_SKIP("needs CAP_SYS_NICE");
    churn();
    for (int i = 0; i < 20; i++) {
        checks_task(other_task());
        usleep(20000);
    }
}
#define REFUSED(call) \
    if (call) TEST_FAIL(#call ": errno %d", errno)
TEST(user_namespace) {
    churn();
    REFUSED(unshare(CLONE_NEWUSER));
}
TEST(user_pid_and_mount_namespace) {
    churn();
    REFUSED(unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS));
}
TEST(mount_namespace_of_another) {
    churn();
    int ready[2];
    CHECK_EQ(pipe(ready), 0);
    pid_t pid = fork();
    if (!pid) {
        char c = unshare(CLONE_NEWNS) ? 'n' : 'y';
        if (write(ready[1], &c, 1) < 0) {}
        pause();
    }
    char c;
    CHECK_EQ(read(ready[0], &c, 1), 1);
    if (c == 'n') TEST_SKIP("needs mount namespaces: root");
    char path[60];
    snprintf(path, sizeof path, "/proc/%d/ns/mnt", pid);
    int fd = open(path, O_RDONLY);
    int failed = setns(fd, CLONE_NEWNS), error = errno;
    kill(pid, SIGKILL);
    if (failed) TEST_FAIL("setns: errno %d", error);
}
TEST(thread_group_of_one_calls) {
    churn();
    REFUSED(unshare(CLONE_FS));
    REFUSED(unshare(CLONE_SIGHAND));
    REFUSED(unshare(CLONE_VM));
}
// A filter for all threads is refused if one of them has another filter.
TEST(filter_for_all_threads) {
    churn();
    struct sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {1, code};
    CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    CHECK_EQ(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program), 0);
}
// The rights of all tasks are those of the program, once it has given them up.
TEST(gives_up_rights_with_the_program) {
    churn();
    if (setuid(65534)) TEST_SKIP("needs root, to change the user");
    for (int i = 0; i < 10; i++) {
        char path[60], text[4096];
        int task = other_task();
        snprintf(path, sizeof path, "/proc/self/task/%d/status", task ? task : getpid());
        FILE *f = fopen(path, "r");
        size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
        text[n] = '\0';
        if (f) fclose(f);
        char *uid = strstr(text, "Uid:");
        if (uid) CHECK_EQ(atoi(uid + 4), 65534);
        usleep(5000);
    }
}
static _Atomic int handled_by;
static void handler(int signal) {
    (void)signal;
    handled_by = (int)syscall(SYS_gettid);
}
TEST(signals_come_to_the_program) {
    signal(SIGUSR1, handler);
    churn();
    for (int i = 0; i < 100; i++) {
        handled_by = 0;
        kill(getpid(), SIGUSR1);
        for (int k = 0; !handled_by && k < 1000 * patience(); k++) usleep(100);
        CHECK_EQ(handled_by, getpid());
    }
}
// Looked at without malloc, which may have reasons for a thread of its own by then.
static int threads_without_malloc(void) {
    char text[4096];
    int fd = open("/proc/self/status", O_RDONLY);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = '\0';
    char *at = strstr(text, "\nThreads:");
    return at ? atoi(at + 9) : -1;
}
TEST(forked_child_is_alone) {
    churn();
    for (int i = 0; i < 10; i++) {
        pid_t pid = fork();
        if (!pid) {
            int threads = threads_without_malloc();
            free(opaque(malloc(100)));
            _exit(threads == 1 ? 0 : 1);
        }
        int status;
        waitpid(pid, &status, 0);
        CHECK_EQ(status, 0);
    }
}
// Who is limited in processes needs none for malloc.
TEST(no_more_processes) {
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_NPROC, &none);
    if (setuid(65534)) TEST_SKIP("needs root, to change the user");
    churn();
    churn();
}

TEST_MAIN()
