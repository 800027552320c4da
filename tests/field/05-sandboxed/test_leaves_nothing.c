// SPDX-License-Identifier: MIT
// What outlives a process: segments of shared memory, files, locks. None may, whatever a filter denies, and whenever
// the process is killed.
#include <sched.h>
#include <signal.h>
#include <sys/ipc.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

#include "field.h"

// Namespaces of our own: what others do meanwhile must not be counted.
static void apart(void) {
    if (unshare(CLONE_NEWIPC | CLONE_NEWNS)) {
        printf("SKIP: needs namespaces: root, or user namespaces: %s\n", strerror(errno));
        exit(0);
    }
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount("none", "/dev/shm", "tmpfs", 0, NULL) ||
        mount("none", "/tmp", "tmpfs", 0, NULL)) {
        printf("SKIP: needs the right to mount: %s\n", strerror(errno));
        exit(0);
    }
}
typedef struct left {
    int segments, semaphores, queues, shm_files, tmp_files;
} left_t;
static left_t count(void) {
    struct shm_info shm;
    struct seminfo sem;
    struct msginfo msg;
    left_t l = {0};
    if (shmctl(0, SHM_INFO, (struct shmid_ds *)&shm) >= 0) l.segments = shm.used_ids;
    if (semctl(0, 0, SEM_INFO, &sem) >= 0) l.semaphores = sem.semusz;
    if (msgctl(0, MSG_INFO, (struct msqid_ds *)&msg) >= 0) l.queues = msg.msgpool;
    l.shm_files = entries("/dev/shm");
    l.tmp_files = entries("/tmp");
    return l;
}
static void none_left(const char *after) {
    left_t l = count();
    if (l.segments || l.semaphores || l.queues || l.shm_files || l.tmp_files)
        TEST_FAIL("after %s: %d segments, %d semaphores, %d queues, %d and %d files are left", after, l.segments,
            l.semaphores, l.queues, l.shm_files, l.tmp_files);
}

static const char *self;
static void find_self(void) {
    static char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    CHECK_GT(n, 0);
    path[n] = '\0';
    self = path;
}
// What the processes do that are started: enough for a statistics page, threads that help, and files of an allocator.
static void busy(void) {
    for (int i = 0; i < 100; i++) free(memset(malloc(100000), 1, 100000));
    many(1000, 3000);
    many((size_t)5 << 20, 2);
}
TEST(busy) { busy(); }

// Starts ourselves with a filter that is there before any code of the new program runs.
static int start(const int *calls, unsigned n, unsigned answer, int kill_after_us) {
    pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, 1);
        dup2(null, 2);
        if (n && !filter(calls, n, answer, SECCOMP_RET_ALLOW)) _exit(77);
        execl(self, self, "busy", (char *)NULL);
        _exit(77);
    }
    if (kill_after_us >= 0) {
        usleep((useconds_t)kill_after_us);
        kill(pid, SIGKILL);
    }
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    return status;
}

#define ENOSYS_ANSWER (SECCOMP_RET_ERRNO | ENOSYS)
#define EPERM_ANSWER (SECCOMP_RET_ERRNO | EPERM)

// Calls that make or give up something that may outlive a process; each alone, and the groups that real filters know
// parts of.
static const struct {
    const char *name;
    int calls[6];
    unsigned n;
} denied[] = {
    {"shmget", {SYS_shmget}, 1},
    {"shmat", {SYS_shmat}, 1},
    {"shmctl", {SYS_shmctl}, 1},
    {"shmdt", {SYS_shmdt}, 1},
    {"shmat and shmctl", {SYS_shmat, SYS_shmctl}, 2},
    {"memfd_create", {SYS_memfd_create}, 1},
    {"ftruncate", {SYS_ftruncate}, 1},
    {"unlink", {SYS_unlink, SYS_unlinkat}, 2},
    {"madvise", {SYS_madvise}, 1},
    {"prctl", {SYS_prctl}, 1},
    {"fcntl", {SYS_fcntl}, 1},
    {"clone", {SYS_clone, SYS_clone3}, 2},
    {"threads' names and masks", {SYS_prctl, SYS_sched_getaffinity, SYS_rt_sigprocmask, SYS_gettid}, 4},
    {"getrandom", {SYS_getrandom}, 1},
    {"process_vm_readv", {SYS_process_vm_readv, SYS_pidfd_open}, 2},
};
static void each_denied(unsigned answer) {
    apart();
    find_self();
    for (size_t i = 0; i < sizeof denied / sizeof *denied; i++) {
        int status = start(denied[i].calls, denied[i].n, answer, -1);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77) TEST_SKIP("needs seccomp");
        if (status) TEST_FAIL("without %s: status %#x", denied[i].name, (unsigned)status);
        none_left(denied[i].name);
    }
}
TEST(each_call_answers_enosys) { each_denied(ENOSYS_ANSWER); }
TEST(each_call_answers_eperm) { each_denied(EPERM_ANSWER); }
// Death by the filter: the process may die, if it made the call; nothing may be left.
TEST(each_call_kills) {
    apart();
    find_self();
    for (size_t i = 0; i < sizeof denied / sizeof *denied; i++) {
        start(denied[i].calls, denied[i].n, SECCOMP_RET_KILL_PROCESS, -1);
        none_left(denied[i].name);
    }
}
TEST(killed_at_any_time) {
    apart();
    find_self();
    for (int i = 0; i < 150; i++) start(NULL, 0, 0, 200 + i * 37);
    none_left("150 kills");
}
TEST(killed_under_random_filters) {
    apart();
    find_self();
    uint64_t random = test_seed;
    enum { ALL = sizeof denied / sizeof *denied };
    for (int i = 0; i < 100; i++) {
        int calls[60];
        unsigned n = 0;
        for (int k = 0; k < 3; k++) {
            unsigned long which = test_random(&random) % ALL;
            memcpy(calls + n, denied[which].calls, denied[which].n * sizeof *calls);
            n += denied[which].n;
        }
        start(calls, n, test_random(&random) % 2 ? ENOSYS_ANSWER : EPERM_ANSWER,
            test_random(&random) % 2 ? (int)(test_random(&random) % 5000) : -1);
    }
    none_left("100 starts under random filters");
}
// The filter comes after the start, as man's and sshd's do.
static void later(void *unused) {
    (void)unused;
    free(malloc(100));
    static const int calls[] = {SYS_shmat, SYS_shmctl, SYS_shmdt, SYS_unlink, SYS_unlinkat, SYS_memfd_create};
    if (!filter(calls, 6, ENOSYS_ANSWER, SECCOMP_RET_ALLOW)) _exit(77);
    busy();
}
TEST(filter_after_the_start) {
    apart();
    captured_t c = capture(later, NULL);
    CHECK_EQ(c.exit_code, 0);
    none_left("a filter after the start");
}
// No lock on a file, and no descriptor that the program did not open.
TEST(no_locks_no_descriptors) {
    int before = entries("/proc/self/fd");
    busy();
    usleep(50000);
    CHECK_EQ(entries("/proc/self/fd"), before);
    char text[65536], mine[40];
    int fd = open("/proc/locks", O_RDONLY);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    text[n > 0 ? n : 0] = '\0';
    if (fd >= 0) close(fd);
    snprintf(mine, sizeof mine, " %d ", (int)getpid());
    CHECK(!strstr(text, mine));
}
// A program that closes every descriptor that it does not know, as daemons do, and opens its own at those numbers.
TEST(all_descriptors_closed) {
    busy();
    for (int fd = 3; fd < 1024; fd++) close(fd);
    int mine = open("/dev/null", O_RDWR);
    CHECK_EQ(mine, 3);
    busy();
    usleep(20000);
    CHECK_EQ(entries("/proc/self/fd"), 5);  // three of the shell's, ours, and that of the folder
    close(mine);
}

TEST_MAIN()
