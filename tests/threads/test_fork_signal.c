// SPDX-License-Identifier: MIT
// test_fork_signal.c: fork in a signal handler that interrupted the heap, perhaps while it held locks.
// malloc may not be called in such a handler, nor in a child that is still inside of it. But the child
// may exec; and of a process with one thread, where all that happened is on its stack, the child may
// return from the handler and go on as the parent does. --forks=N.
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "stress/shadow.h"

static long forks = 1000;

#if defined(__SANITIZE_THREAD__)
#define WITHOUT_TSAN() TEST_SKIP("needs a build without ThreadSanitizer, which allocates when a handler forks")
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WITHOUT_TSAN() TEST_SKIP("needs a build without ThreadSanitizer, which allocates when a handler forks")
#endif
#endif
#ifndef WITHOUT_TSAN
#define WITHOUT_TSAN() (void)0
#endif

static struct state {
    _Atomic long begun;   // calls of the handler that forked
    _Atomic long failed;  // children that did not end as they should, ...
    _Atomic int status;   // ... and how the last of them did
} * shared;               // by the children, too

enum { SLOTS = 64 };
static shadow_t slot[SLOTS];

// Sizes of which many need the slow path and the page layer, so that the signal finds locks held.
static void step(uint64_t *random) {
    shadow_t *s = &slot[test_random(random) % SLOTS];
    if (s->p) {
        m.free(s->p);
        s->p = NULL;
        return;
    }
    size_t n = (size_t)1 << (test_random(random) % 4 ? 11 + test_random(random) % 6 : 14 + test_random(random) % 8);
    CHECK((s->p = m.malloc(n)) != NULL);
    s->p[0] = s->p[n - 1] = 1;
}

static volatile sig_atomic_t in_child;  // made by the handler

static void wait_for_child(pid_t pid, int wanted) {
    int status;
    while (waitpid(pid, &status, 0) != pid) {
        if (errno == ECHILD && in_child) return;  // the handler's child goes on here, and has no children yet
        CHECK_EQ(errno, EINTR);
    }
    if (status != wanted) {
        shared->status = status;
        shared->failed++;
    }
}

// ---- signals at any time --------------------------------------------------------------------------------

// One signal at a time, each some microseconds after the handler of the last has ended. A fork's child
// gets none: timers are the parent's.
static timer_t timer;
static uint64_t timer_random;
static volatile sig_atomic_t armed;  // a last signal may be on its way when the timer is gone

static void arm_timer(void) {
    if (in_child || !armed) return;
    struct itimerspec next = {{0, 0}, {0, 1000 + (long)(test_random(&timer_random) % 150000)}};
    CHECK_EQ(timer_settime(timer, 0, &next, NULL), 0);
}
static void start_timer(void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    CHECK_EQ(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
    timer_random = test_seed;
    armed = 1;
    arm_timer();
}
static void stop_timer(void) {
    armed = 0;
    timer_delete(timer);
}

static void begin(void) {
    if (!shared) shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    *shared = (struct state){0};
    // a fork and exec beside two busy threads takes 11 ms and more where processors are shared
    alarm((unsigned)(TEST_PATIENCE + forks / 5));
}
static void end(void) {
    alarm(0);
    if (shared->failed)
        TEST_FAIL("%ld of %ld children failed; the last ended with 0x%x", shared->failed, shared->begun,
            (unsigned)shared->status);
    for (int i = 0; i < SLOTS; i++) {
        m.free(slot[i].p);
        slot[i].p = NULL;
    }
}

// ---- handlers that do nothing of the heap ------------------------------------------------------------------

static volatile sig_atomic_t interruptions;
static void count(int sig) {
    (void)sig;
    interruptions = interruptions + 1;
    arm_timer();
}
TEST(handler_only_interrupts) {
    uint64_t random = test_seed;
    begin();
    start_timer(count);
    for (long i = 0; interruptions < 2 * forks; i++) {
        shadow_t *s = &slot[test_random(&random) % SLOTS];
        if (s->p && i % 3 == 0) shadow_resize(s, &random);
        else if (s->p) shadow_free(s, &random);
        else shadow_make(s, &random);
    }
    stop_timer();
    for (int i = 0; i < SLOTS; i++) shadow_free(&slot[i], &random);
    end();
}

// ---- the child goes on where the handler interrupted ----------------------------------------------------

static void fork_and_return(int sig) {
    (void)sig;
    if (in_child || shared->begun >= forks) return;
    shared->begun++;
    int saved = errno;
    pid_t pid = fork();
    if (pid == 0) {
        in_child = 1;
        alarm(TEST_PATIENCE);
    } else if (pid > 0) {
        wait_for_child(pid, 7 << 8);
        arm_timer();
    }
    errno = saved;
}

// It lives on: what was interrupted has ended well, and everything else works, too.
static void end_of_child(void) {
    m.trim(0);
    for (int i = 0; i < SLOTS; i++) m.free(slot[i].p);
    _exit(7);
}

TEST(child_goes_on) {
    WITHOUT_TSAN();
    uint64_t random = test_seed;
    begin();
    start_timer(fork_and_return);
    for (long after = 0; shared->begun < forks || in_child;) {
        step(&random);
        if (in_child && ++after == 200) end_of_child();
    }
    stop_timer();
    end();
}

// The handler interrupts a process that does nothing but fork: its fork comes in the middle of another.
TEST(fork_in_a_fork) {
    WITHOUT_TSAN();
    uint64_t random = test_seed;
    begin();
    start_timer(fork_and_return);
    for (long after = 0; shared->begun < forks || in_child;) {
        pid_t pid = fork();
        CHECK_GE(pid, 0);
        if (pid == 0) {
            alarm(TEST_PATIENCE);
            for (int i = 0; i < 50; i++) step(&random);
            m.trim(0);
            _exit(0);
        }
        wait_for_child(pid, 0);
        for (int i = 0; i < 5; i++) step(&random);
        if (in_child && ++after == 3) end_of_child();
    }
    stop_timer();
    end();
}

// ---- the handler ends the process --------------------------------------------------------------------------

// A handler may not call exit, but many do. What the heap does at the end it leaves out where it was interrupted
// itself, and its lists are whole at any time.
static void leave(int sig) {
    (void)sig;
    exit(7);
}

// Something to give back at the end: blocks, a few of them live in each slab, so that none is whole; freed in no order,
// so that they go home.
static void leave_free(void) {
    enum { COUNT = 20000 };
    static void *p[COUNT];
    for (int i = 0; i < COUNT; i++) CHECK((p[i] = m.malloc(256)) != NULL);
    for (int i = 0; i < COUNT; i++)
        if (i % 50) m.free(p[i * 7919L % COUNT]);
}

TEST(exit_in_a_handler) {
    WITHOUT_TSAN();
    if (FAMILY_SANITIZED) TEST_SKIP("needs a build without sanitizers: their own work at the end is not for handlers");
    uint64_t random = test_seed;
    begin();
    fflush(NULL);
    for (; shared->begun < forks && shared->begun < 20000; shared->begun++) {
        test_random(&random);
        pid_t pid = fork();
        CHECK_GE(pid, 0);
        if (pid == 0) {
            alarm(TEST_PATIENCE);
            leave_free();
            start_timer(leave);
            for (int i = 0;; i++) {
                void *small[20];
                for (int k = 0; k < 20; k++) small[k] = m.malloc(64);
                for (int k = 0; k < 20; k++) m.free(small[k]);
                if (shared->begun % 2) step(&random);
            }
        }
        wait_for_child(pid, 7 << 8);
    }
    end();
}

// ---- with other threads: the child only execs ------------------------------------------------------------

static char *exec_argv[] = {(char *)"/bin/true", NULL};

static void fork_and_exec(int sig) {
    (void)sig;
    if (shared->begun >= forks) return;
    shared->begun++;
    int saved = errno;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(TEST_PATIENCE);
        execv(exec_argv[0], exec_argv);
        _exit(1);
    }
    if (pid > 0) wait_for_child(pid, 0);
    arm_timer();
    errno = saved;
}

static _Atomic int stop;
static void *churn(void *arg) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    uint64_t random = (uint64_t)(uintptr_t)arg + 1;
    void *p[64] = {0};
    while (!stop) {
        size_t k = test_random(&random) % 64;
        m.free(p[k]);
        p[k] = m.malloc((size_t)1 << (10 + test_random(&random) % 12));
        CHECK(p[k] != NULL);
    }
    for (int k = 0; k < 64; k++) m.free(p[k]);
    return NULL;
}

TEST(child_execs_beside_threads) {
    WITHOUT_TSAN();
    pthread_t thread[2];
    uint64_t random = test_seed;
    begin();
    for (int i = 0; i < 2; i++) CHECK_EQ(pthread_create(&thread[i], NULL, churn, (void *)(uintptr_t)i), 0);
    start_timer(fork_and_exec);
    while (shared->begun < forks) step(&random);
    stop_timer();
    stop = 1;
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    end();
}

int main(int argc, char **argv) {
#ifndef __GLIBC__
    unsetenv("LD_PRELOAD");  // the programs that it starts are the system's, and of glibc
#endif
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--forks=", 8)) forks = atol(argv[i] + 8);
    }
    if (FAMILY_SANITIZED) forks /= 4;
    return test_main(argc, argv);
}
