// SPDX-License-Identifier: MIT
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/compiler.h"
#include "captured.h"
#include "os/os.h"
#include "os/syscall.h"

TEST(system_calls) {
    errno = 77;
    CHECK_EQ(qy_syscall(SYS_getpid), getpid());
    CHECK_EQ(qy_syscall(SYS_close, -1), -EBADF);
    CHECK(qy_syscall_failed(qy_syscall(SYS_close, -1)));
    CHECK_EQ(qy_syscall(SYS_munmap, 1, 4096), -EINVAL);
    CHECK_EQ(qy_syscall(SYS_mmap, 0, 4096, 0, MAP_PRIVATE, -1, 0), -EBADF);  // five and six arguments arrive
    CHECK(!qy_syscall_failed(0) && !qy_syscall_failed(-4096) && qy_syscall_failed(-4095) && qy_syscall_failed(-1));
    CHECK_EQ(errno, 77);
}

TEST(identity) {
    CHECK_EQ(qy_os_process_id(), getpid());
    CHECK_EQ(qy_os_thread_id(), getpid());
    CHECK(qy_os_is_first_thread());
}

typedef struct identity {
    int id;
    uintptr_t token;
    bool first;
} identity_t;
static void *identify(void *p) {
    *(identity_t *)p = (identity_t){qy_os_thread_id(), qy_os_thread_token(), qy_os_is_first_thread()};
    return NULL;
}
TEST(identity_of_threads) {
    pthread_t t;
    identity_t other;
    CHECK_EQ(pthread_create(&t, NULL, identify, &other), 0);
    pthread_join(t, NULL);
    CHECK_NE(other.id, getpid());
    CHECK_GT(other.id, 0);
    CHECK(!other.first);
    CHECK_NE(other.token, qy_os_thread_token());
}

static void same_token(void *token) {
    CHECK_NE(qy_os_thread_id(), getppid());
    qy_os_first_thread_in_child();
    CHECK(qy_os_is_first_thread());
    CHECK_EQ(qy_os_thread_token(), *(uintptr_t *)token);
}
TEST(token_survives_fork) {
    uintptr_t token = qy_os_thread_token();
    CHECK_EQ(token, qy_os_thread_token());
    run_apart(same_token, &token);
}

// ---- waiting --------------------------------------------------------------------------------------

TEST(wait_returns) {
    _Atomic uint32_t word = 5;
    errno = 77;
    qy_os_wait(&word, 4, 0);  // another value: at once
    uint64_t begin = qy_os_now_ns();
    while (qy_os_now_ns() < begin + 30000000) qy_os_wait(&word, 5, 30000000);
    CHECK_LT(qy_os_now_ns() - begin, TEST_PATIENCE * UINT64_C(1000000000));
    begin = qy_os_now_ns();
    qy_os_wait(&word, 5, 1);
    CHECK_LT(qy_os_now_ns() - begin, TEST_PATIENCE * UINT64_C(1000000000));
    qy_os_wake(&word, 1);  // nobody
    sched_yield();
    CHECK_EQ(errno, 77);
}

static _Atomic uint32_t gate;
static _Atomic int passed;
static void *pass(void *unused) {
    (void)unused;
    while (gate == 0) qy_os_wait(&gate, 0, 0);
    passed++;
    return NULL;
}
TEST(wake_all) {
    pthread_t t[4];
    for (int i = 0; i < 4; i++) CHECK_EQ(pthread_create(&t[i], NULL, pass, NULL), 0);
    usleep(20000);
    CHECK_EQ(passed, 0);
    gate = 1;
    qy_os_wake(&gate, UINT32_MAX);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    CHECK_EQ(passed, 4);
}

// ---- bare threads -----------------------------------------------------------------------------------

typedef struct task {
    _Atomic uint32_t go;
    uint64_t mask;  // of blocked signals
    uint64_t time_ns;
    uintptr_t stack, token;
    int thread_id, process_id;
} task_t;

static _Atomic uint32_t alive;
static char stack[32768] __attribute__((aligned(16)));

static void bare(void *p) {
    task_t *t = p;
    t->stack = (uintptr_t)__builtin_frame_address(0);
    t->token = qy_os_thread_token();
    t->time_ns = qy_os_now_ns();
    errno = 5;  // not to be done, but it must harm nobody
    t->thread_id = qy_os_thread_id();
    t->process_id = qy_os_process_id();
    qy_syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &t->mask, sizeof t->mask);
    while (t->go == 0) qy_os_wait(&t->go, 0, 0);
}

static int count_threads(void) {
    DIR *d = opendir("/proc/self/task");
    if (!d) return -1;
    int n = 0;
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

TEST(spawn) {
    task_t t = {.go = 0};
    sigset_t before, after;
    for (int i = 0; i < 10000 && count_threads() > 1; i++) usleep(1000);  // joined threads vanish a little later
    int threads = count_threads();
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    errno = 77;
    bool started = qy_os_spawn(bare, &t, stack, sizeof stack, &alive);
    CHECK_EQ(errno, 77);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    CHECK_EQ(memcmp(&before, &after, sizeof(uint64_t)), 0);
    if (!started) {
        CHECK_EQ(alive, 0);
        TEST_SKIP("needs a kernel and a build with bare threads");
    }
    CHECK_EQ(alive, 1);
    CHECK_EQ(count_threads(), threads < 0 ? -1 : threads + 1);
    qy_os_wait(&alive, 1, 10000000);
    CHECK_EQ(alive, 1);
    t.go = 1;
    qy_os_wake(&t.go, 1);
    CHECK(qy_os_join(&alive, 0));
    CHECK_EQ(alive, 0);
    CHECK_EQ(t.process_id, getpid());
    CHECK_NE(t.thread_id, getpid());
    CHECK_NE(t.token, qy_os_thread_token());
    CHECK_EQ(errno, 77);
    CHECK_LT(qy_os_now_ns() - t.time_ns, TEST_PATIENCE * UINT64_C(1000000000));
    CHECK(t.stack > (uintptr_t)stack && t.stack < (uintptr_t)stack + sizeof stack);
    CHECK(t.mask == ~(1ull << (SIGKILL - 1) | 1ull << (SIGSTOP - 1)));
    TEST_AWAIT(count_threads() == threads);
}

// Ends at once, many times over on the same stack: `alive` is never cleared too early.
static void brief(void *counter) { ++*(_Atomic long *)counter; }
TEST(spawn_often) {
    _Atomic long counter = 0;
    for (int i = 0; i < 3000; i++) {
        if (!qy_os_spawn(brief, (void *)&counter, stack, sizeof stack, &alive))
            TEST_SKIP("needs a kernel and a build with bare threads");
        CHECK(qy_os_join(&alive, 0));
    }
    CHECK_EQ(counter, 3000);
}

// The kernel counts it for a moment longer, and refuses calls until then.
TEST(spawn_and_be_alone) {
    _Atomic long counter = 0;
    for (int i = 0; i < 10000 && count_threads() > 1; i++) usleep(1000);
    int threads = count_threads();
    for (int i = 0; i < 1000; i++) {
        if (!qy_os_spawn(brief, (void *)&counter, stack, sizeof stack, &alive))
            TEST_SKIP("needs a kernel and a build with bare threads");
        CHECK(qy_os_join(&alive, 0));
        qy_os_bare_threads_gone(TEST_PATIENCE * UINT64_C(1000000000));
        CHECK_EQ(count_threads(), threads);
    }
}

// Started by a thread that ends first and takes its thread-local storage with it.
static task_t orphan;
static void *start_orphan(void *unused) {
    (void)unused;
    return (void *)(long)qy_os_spawn(bare, &orphan, stack, sizeof stack, &alive);
}
TEST(spawn_outlives_its_parent) {
    pthread_t t;
    pthread_attr_t attr;
    void *started;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 64 << 20);  // too large for libc to keep: it is unmapped
    CHECK_EQ(pthread_create(&t, &attr, start_orphan, NULL), 0);
    pthread_join(t, &started);
    if (!started) TEST_SKIP("needs a kernel and a build with bare threads");
    orphan.go = 1;
    qy_os_wake(&orphan.go, 1);
    CHECK(qy_os_join(&alive, 0));
    CHECK_EQ(orphan.process_id, getpid());
}

// exit() does not wait for it, and a signal to the process never reaches it.
static void exit_with_one(void *unused) {
    (void)unused;
    static task_t forever;
    qy_os_spawn(bare, &forever, stack, sizeof stack, &alive);
    exit(5);
}
static void signal_with_one(void *unused) {
    (void)unused;
    static task_t forever;
    qy_os_spawn(bare, &forever, stack, sizeof stack, &alive);
    kill(getpid(), SIGTERM);
    pause();
}
TEST(process_ends_as_ever) {
    CHECK_EQ(capture(exit_with_one, NULL).exit_code, 5);
    CHECK_EQ(capture(signal_with_one, NULL).exit_signal, SIGTERM);
}

TEST_MAIN()
