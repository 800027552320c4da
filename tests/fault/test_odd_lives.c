// SPDX-License-Identifier: MIT
// Processes without something that most have: files that may grow, room on the disk, threads, an environment, rights.
// And processes at their limit, or whose threads end by the call alone. Any malloc may serve them: see scenarios.py.
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "field/field.h"

#define MIB ((size_t)1 << 20)

extern char **environ;

static char self[4096];

static void judge(const captured_t *c, const char *needs) {
    alarm(0);
    if (c->exit_code == 77) TEST_SKIP("needs %s", needs);
    if (c->exit_code) TEST_FAIL("exit status %d, signal %d: %.300s", c->exit_code, c->exit_signal, c->text);
}
// In a child, which ends with 77 where it cannot be tried.
static void tried(void (*body)(void *), void *arg, const char *needs) {
    alarm(TEST_PATIENCE);
    captured_t c = capture(body, arg);
    judge(&c, needs);
}
// The same program anew, with what was limited before its start.
static void anew(void) {
    execl(self, self, "work", (char *)NULL);
    _exit(126);
}
static void limit(int resource, size_t bytes) {
    struct rlimit r;
    CHECK_EQ(getrlimit((__rlimit_resource_t)resource, &r), 0);
    r.rlim_cur = bytes;
    if (r.rlim_max != RLIM_INFINITY && (r.rlim_cur == RLIM_INFINITY || r.rlim_cur > r.rlim_max)) _exit(77);
    CHECK_EQ(setrlimit((__rlimit_resource_t)resource, &r), 0);
}
static void *work_in_thread(void *unused) {
    work();
    return unused;
}
static void work_everywhere(void) {
    pthread_t thread;
    int status;
    work();
    CHECK_EQ(pthread_create(&thread, NULL, work_in_thread, NULL), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (!pid) {
        work();
        _exit(33);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 33 << 8);
}

// ---- files ------------------------------------------------------------------------------------------------

static void no_file_grows(void *before) {
    limit(RLIMIT_FSIZE, 0);
    if (before) anew();
    work_everywhere();
}
TEST(no_file_may_grow_from_the_start) { tried(no_file_grows, self, ""); }
TEST(no_file_may_grow_from_now_on) { tried(no_file_grows, NULL, ""); }

// Wherever programs put files: no byte is free, or none may be written.
static void full_disks(void *read_only) {
    static const char *const folders[] = {"/tmp", "/var/tmp", "/dev/shm"};
    if (unshare(CLONE_NEWNS) && unshare(CLONE_NEWUSER | CLONE_NEWNS)) _exit(77);
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) _exit(77);
    for (int i = 0; i < 3; i++) {
        char path[40];
        if (mount("none", folders[i], "tmpfs", 0, "size=4k,mode=1777")) _exit(77);
        snprintf(path, sizeof path, "%s/fill", folders[i]);
        int fd = open(path, O_CREAT | O_WRONLY, 0600);
        while (write(fd, self, sizeof self) > 0) {}
        close(fd);
        if (read_only) CHECK_EQ(mount(NULL, folders[i], NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    }
    const char *library = getenv("LD_PRELOAD");
    if (access(self, X_OK) || (library && access(library, R_OK))) _exit(77);  // they lie there themselves
    CHECK_EQ(chdir("/tmp"), 0);
    unsetenv("TMPDIR");
    anew();
}
TEST(full_disks) { tried(full_disks, NULL, "the right to mount, and a build that is not in /tmp"); }
TEST(read_only_disks) { tried(full_disks, self, "the right to mount, and a build that is not in /tmp"); }

// A server closes all descriptors when it begins, and again; what it opens then is the first.
static void close_all(void *unused) {
    (void)unused;
    for (int i = 0; i < 20; i++) {
        for (int fd = 3; fd < 200; fd++) close(fd);
        work();
        int first = open("/dev/null", O_RDONLY);
        CHECK_EQ(first, 3);
        CHECK_EQ(open("/proc/self/maps", O_RDONLY), 4);
        work_in_thread(NULL);
        char byte;
        CHECK_EQ(read(4, &byte, 1), 1);  // it is still the file that was opened
    }
}
TEST(all_descriptors_are_closed_again_and_again) { tried(close_all, NULL, ""); }

// ---- rights -----------------------------------------------------------------------------------------------

static void no_thread(void *unused) {
    pthread_t thread;
    (void)unused;
    work();
    if (setgroups(0, NULL) || setgid(65534) || setuid(65534)) _exit(77);
    limit(RLIMIT_NPROC, 0);
    if (pthread_create(&thread, NULL, work_in_thread, NULL) == 0) _exit(77);
    for (int i = 0; i < 3; i++) {
        work();
        usleep(20000);
        CHECK_EQ(pthread_create(&thread, NULL, work_in_thread, NULL), EAGAIN);
    }
}
TEST(no_thread_can_be_made) { tried(no_thread, NULL, "root, and a kernel that limits processes"); }

static void locked_up(void *folder) {
    work();
    if (chroot(folder) || chdir("/") || setgroups(0, NULL) || setgid(65534) || setuid(65534)) _exit(77);
    CHECK_EQ(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), 0);
    work_everywhere();
}
TEST(an_empty_root_and_no_rights) {
    char folder[] = "/tmp/locked-up-XXXXXX";
    CHECK(mkdtemp(folder));
    alarm(TEST_PATIENCE);
    captured_t c = capture(locked_up, folder);
    CHECK_EQ(rmdir(folder), 0);
    judge(&c, "root");
}

static void no_environment(void *unused) {
    (void)unused;
    CHECK_EQ(clearenv(), 0);
    environ = NULL;
    work_everywhere();
}
TEST(no_environment) { tried(no_environment, NULL, ""); }

// ---- stacks and layouts -----------------------------------------------------------------------------------

static void stack_of(void *bytes) {
    limit(RLIMIT_STACK, *(size_t *)bytes);
    anew();
}
// Each mapping above the one before, as kernels placed them of old.
static void from_below(void *unused) {
    (void)unused;
    if (personality(ADDR_COMPAT_LAYOUT) < 0) _exit(77);
    anew();
}
TEST(mappings_from_below) { tried(from_below, NULL, "a kernel that knows the old layout"); }
TEST(a_small_stack_of_the_program) {
    size_t bytes = 256 << 10;
    tried(stack_of, &bytes, "");
}

// A program that handles faults of its own, as collectors of garbage and emulators do, and others that it gets.
static char *guarded_page;
static volatile sig_atomic_t faults;
static void on_fault(int number, siginfo_t *info, void *unused) {
    (void)number, (void)unused;
    if ((char *)info->si_addr < guarded_page || (char *)info->si_addr >= guarded_page + 4096) _exit(5);
    faults = faults + 1;
    mprotect(guarded_page, 4096, PROT_READ | PROT_WRITE);
}
static void own_faults(void *unused) {
    (void)unused;
    struct sigaction mine = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, now;
    CHECK_EQ(sigaction(SIGSEGV, &mine, NULL), 0);
    guarded_page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(guarded_page != MAP_FAILED);
    for (int i = 0; i < 10; i++) {
        work();
        CHECK_EQ(sigaction(SIGSEGV, NULL, &now), 0);
        CHECK(now.sa_sigaction == on_fault);
        guarded_page[i] = 1;
        CHECK_EQ(faults, i + 1);
        CHECK_EQ(mprotect(guarded_page, 4096, PROT_NONE), 0);
    }
}
TEST(faults_are_the_programs) { tried(own_faults, NULL, ""); }

// ---- threads ----------------------------------------------------------------------------------------------

static void *left[64];
static void *gone_unheard(void *place) {
    for (int i = 0; i < 200; i++) free(opaque(malloc((size_t)16 << i % 14)));
    *(void **)place = malloc(3000);
    syscall(SYS_exit, 0);
    return NULL;
}
static void raw_ends(void *unused) {
    (void)unused;
    pthread_t thread;
    for (int i = 0; i < 64; i++) {
        CHECK_EQ(pthread_create(&thread, NULL, gone_unheard, &left[i]), 0);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        CHECK(left[i] != NULL);
        memset(left[i], i, 3000);
        for (int k = 0; k < 200; k++) free(opaque(malloc(100)));
    }
    malloc_trim(0);
    for (int i = 0; i < 64; i++) CHECK_EQ(((char *)left[i])[2999], i);
    for (int i = 0; i < 64; i++) free(left[i]);
    work_everywhere();
}
TEST(threads_end_by_the_call_alone) { tried(raw_ends, NULL, ""); }

// ---- at the limit -----------------------------------------------------------------------------------------

enum { MANY = 4000 };
static char *block[MANY];

static size_t fill(size_t size) {
    size_t n = 0;
    while (n < MANY && (block[n] = malloc(size))) block[n++][0] = 1;
    return n;
}
static void empty(size_t n) {
    while (n) free(block[--n]);
}
static void little_room(size_t mib) {
    free(opaque(malloc(100000)));
    limit(RLIMIT_AS, (size_t)(memory_mib(0) * 1048576) + mib * MIB);
}

static void fork_at_the_limit(void *unused) {
    (void)unused;
    little_room(64);
    for (int round = 0; round < 5; round++) {
        size_t n = fill(100000);
        int status;
        CHECK(n > 64 && n < MANY);
        CHECK_EQ(errno, ENOMEM);
        pid_t pid = fork();
        CHECK_GE(pid, 0);
        if (!pid) {
            empty(n / 2);
            size_t more = 0;
            while (more < n / 4 && (block[more] = malloc(90000))) more++;
            _exit(more == n / 4 ? 33 : 34);
        }
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK_EQ(status, 33 << 8);
        empty(n);
    }
}
TEST(a_fork_at_the_limit) { tried(fork_at_the_limit, NULL, ""); }

static _Atomic int refused;
static pthread_barrier_t all_there;
static void *fill_beside(void *unused) {
    void *own[400];
    int n = 0;
    pthread_barrier_wait(&all_there);
    errno = 0;
    while (n < 400 && (own[n] = malloc(50000))) memset(own[n++], 1, 50000);
    if (n < 400 && errno == ENOMEM) refused++;
    pthread_barrier_wait(&all_there);
    while (n) free(own[--n]);
    return unused;
}
static void *live_a_little(void *unused) {
    for (int i = 0; i < 50; i++) free(opaque(malloc((size_t)16 << i % 12)));
    usleep(2000);
    return unused;
}
// Threads that reach the limit together, and threads of which there are as many as there can be.
static void threads_at_the_limit(void *unused) {
    (void)unused;
    pthread_t thread[200];
    pthread_attr_t small;
    CHECK_EQ(pthread_attr_init(&small), 0);
    CHECK_EQ(pthread_attr_setstacksize(&small, MIB), 0);
    little_room(100);
    for (int round = 0; round < 3; round++) {
        pthread_barrier_init(&all_there, NULL, 8);
        for (int i = 0; i < 8; i++) CHECK_EQ(pthread_create(&thread[i], &small, fill_beside, NULL), 0);
        for (int i = 0; i < 8; i++) CHECK_EQ(pthread_join(thread[i], NULL), 0);
        CHECK_GE(refused, 1);
        refused = 0;
        size_t n = fill(100000);
        int count = 0, error = 0;
        empty(n);
        CHECK(n > 64 && n < MANY);
        while (count < 199 && !(error = pthread_create(&thread[count], &small, live_a_little, NULL))) count++;
        if (error) CHECK_EQ(error, EAGAIN);
        for (int i = 0; i < count; i++) pthread_join(thread[i], NULL);
    }
}
TEST(threads_at_the_limit) { tried(threads_at_the_limit, NULL, ""); }

static void grow_at_the_limit(void *unused) {
    (void)unused;
    little_room(100);
    for (int round = 0; round < 5; round++) {
        size_t n = 4096;
        unsigned char *p = malloc(n), *q;
        CHECK(p != NULL);
        memset(p, round, n);
        while ((q = realloc(p, n + n / 4))) {
            memset(q + n, round, n / 4);
            p = q;
            n += n / 4;
        }
        CHECK_EQ(errno, ENOMEM);
        CHECK_GT(n, 10 * MIB);
        for (size_t i = 0; i < n; i += 511) CHECK_EQ(p[i], round);
        CHECK_EQ(p[n - 1], round);
        CHECK((p = realloc(p, 5000)) && p[4999] == round);
        free(p);
    }
}
TEST(growth_to_the_limit) { tried(grow_at_the_limit, NULL, ""); }

// The kernel gives no more, as in a sandbox that has closed behind the start: what there is serves.
static void no_mappings(void *unused) {
    static const int calls[] = {SYS_mmap, SYS_mprotect, SYS_mremap};
    (void)unused;
    work();
    if (!filter(calls, 3, SECCOMP_RET_ERRNO | ENOMEM, SECCOMP_RET_ALLOW)) _exit(77);
    for (int round = 0; round < 5; round++) {
        errno = 0;
        CHECK(!malloc((size_t)100 << 30) && errno == ENOMEM);
        size_t n = fill(100);
        for (size_t i = 0; i < n; i++) memset(block[i], round, 100);
        for (size_t i = 0; i < n; i++) CHECK(block[i][0] == round && block[i][99] == round);
        empty(n);
        empty(fill(1000000));
    }
}
TEST(mappings_are_refused) { tried(no_mappings, NULL, "seccomp"); }

int main(int argc, char **argv) {
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return 1;
    if (argc != 2 || strcmp(argv[1], "work")) return test_main(argc, argv);
    work_everywhere();
    return 0;
}
