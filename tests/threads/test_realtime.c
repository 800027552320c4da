// SPDX-License-Identifier: MIT
// test_realtime.c: a thread of higher priority shares its processor with others that are in malloc. When it needs a
// lock that one of them holds, it must sleep: by spinning and yielding it would keep the holder from running for ever.
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>

#include "api/family.h"

#define SECONDS 1.5  // at least
#define OTHERS 3

static double seconds_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
static double now(void) { return seconds_of(CLOCK_MONOTONIC); }
static double used(void) { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }

static _Atomic bool stop;
static void *_Atomic mail[64];

// Blocks of all kinds, and some for others to free.
static void *in_malloc(void *arg) {
    uint64_t random = (uint64_t)(uintptr_t)arg + 1;
    static __thread char *p[300];
    while (!stop) {
        size_t i = test_random(&random) % 300;
        m.free(p[i]);
        p[i] = m.malloc(test_random(&random) % 5 ? test_random(&random) % 3000 + 1 : test_random(&random) % 200000 + 1);
        CHECK(p[i]);
        *p[i] = 1;
        m.free(atomic_exchange(&mail[test_random(&random) % 64], m.malloc(200)));
    }
    for (int i = 0; i < 300; i++) {
        m.free(p[i]);
        p[i] = NULL;
    }
    return NULL;
}

static void fork_once(void) {
    pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (pid == 0) {
        m.free(m.malloc(100));
        _exit(0);
    }
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
}
static void trim(void) { m.trim(0); }
static void allocate(void) {
    for (size_t i = 0; i < 20; i++) {
        m.free(atomic_exchange(&mail[i], m.malloc(200)));
        m.free(m.malloc(100000 + i * 4096));
    }
}

static bool set_policy(pthread_t thread, int policy) {
    struct sched_param param = {.sched_priority = policy == SCHED_FIFO ? 50 : 0};
    return pthread_setschedparam(thread, policy, &param) == 0;
}

// Does it again and again while others, of a lower policy, have the rest of the processor. A thread that sleeps uses
// little of the processor, however long it waits: that depends on what else the machine does.
static void beside(int mine, int theirs, void (*once)(void), int least) {
    cpu_set_t all, one;
    pthread_t t[OTHERS];
    CHECK_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    alarm(TEST_PATIENCE);
    stop = false;
    for (size_t i = 0; i < OTHERS; i++) {
        CHECK_EQ(pthread_create(&t[i], NULL, in_malloc, (void *)i), 0);
        CHECK(set_policy(t[i], theirs));
    }
    bool may = set_policy(pthread_self(), mine);
    int times = 0;
    double most = 0;
    for (double end = now() + SECONDS; may && (now() < end || times < least); times++) {
        double begun = used();
        once();
        double has_used = used() - begun;
        if (has_used > most) most = has_used;
        nanosleep(&(struct timespec){0, 700000 + times % 7 * 90000}, NULL);
    }
    CHECK(set_policy(pthread_self(), SCHED_OTHER));
    stop = true;
    for (int i = 0; i < OTHERS; i++) pthread_join(t[i], NULL);
    CHECK_EQ(sched_setaffinity(0, sizeof all, &all), 0);
    alarm(0);
    if (!may) TEST_SKIP("needs real-time priority: RLIMIT_RTPRIO, or CAP_SYS_NICE");
    printf("%d times, the most that one used was %.1f ms\n", times, most * 1e3);
    // 0.95 and more: until the kernel takes the processor away from who spins
    CHECK_LE(most, 0.2);
}

TEST(a_fork) { beside(SCHED_FIFO, SCHED_OTHER, fork_once, 80); }
TEST(a_trim) { beside(SCHED_FIFO, SCHED_OTHER, trim, 80); }
TEST(allocations) { beside(SCHED_FIFO, SCHED_OTHER, allocate, 80); }
// The holder gets a three-hundredth of the processor if others want it, so single calls may take long.
TEST(a_fork_beside_idle_threads) { beside(SCHED_OTHER, SCHED_IDLE, fork_once, 20); }
TEST(a_trim_beside_idle_threads) { beside(SCHED_OTHER, SCHED_IDLE, trim, 20); }

TEST_MAIN()
