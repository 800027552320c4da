// SPDX-License-Identifier: MIT
// A thread of real-time priority and ordinary ones on one processor. Where it needs what an ordinary one holds it must
// sleep: as long as it spins or yields, the other never runs, until the kernel's throttling ends that after a second.
// So who waits may use little of the processor. How long it waits says nothing: the machine may have more to do.
#include <stdatomic.h>
#include <pthread.h>
#include <sched.h>

#include "field.h"

enum { MOST_MS = 300,
    TIMES = 300,
    ORDINARY = 3 };
static _Atomic int stop;
static void *_Atomic mail[64];

static void *ordinary(void *seed) {
    unsigned s = (unsigned)(uintptr_t)seed + 1;
    static __thread void *p[300];
    while (!stop) {
        s = s * 1103515245 + 12345;
        unsigned i = (s >> 8) % 300;
        free(p[i]);
        p[i] = malloc((s >> 16) % 5 ? (s >> 12) % 3000 + 1 : (s >> 12) % 200000 + 1);
        if (p[i]) *(char *)p[i] = 1;
        free(atomic_exchange(&mail[s >> 26], malloc(200)));
    }
    return NULL;
}
static void swap_mail(int n) {
    for (int i = 0; i < 20; i++) {
        free(atomic_exchange(&mail[(n + i) % 64], malloc(200)));
        free(opaque(malloc(100000 + (size_t)i * 4096)));
    }
}
static void trim(int n) {
    (void)n;
    malloc_trim(0);
}
static void forks(int n) {
    (void)n;
    pid_t pid = fork();
    if (!pid) {
        free(opaque(malloc(100)));
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}
static void info(int n) {
    (void)n;
    struct mallinfo2 m = mallinfo2();
    opaque(&m);
}
static void *nothing(void *unused) {
    free(opaque(malloc(5000)));
    return unused;
}
static void threads(int n) {
    (void)n;
    pthread_t t;
    if (pthread_create(&t, NULL, nothing, NULL) == 0) pthread_join(t, NULL);
}
static void huge(int n) { free(opaque(malloc(((size_t)33 + (size_t)n % 8) << 20))); }

// Does it again and again as a real-time thread. What it used of the processor must not be a spin that throttling
// ended.
static void beside_others(void (*what)(int), int policy, int others_policy) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    pthread_t t[ORDINARY];
    for (uintptr_t i = 0; i < ORDINARY; i++) {
        CHECK_EQ(pthread_create(&t[i], NULL, ordinary, (void *)i), 0);
        struct sched_param none = {0};
        CHECK_EQ(pthread_setschedparam(t[i], others_policy, &none), 0);
    }
    struct sched_param priority = {policy == SCHED_OTHER ? 0 : 50};
    if (pthread_setschedparam(pthread_self(), policy, &priority)) {
        printf("SKIP: needs real-time priority: RLIMIT_RTPRIO, or CAP_SYS_NICE\n");
        exit(0);
    }
    double worst = 0, end = now_ms() + 1000;
    for (int times = 0; times < 20 || (times < TIMES && now_ms() < end); times++) {
        struct timespec pause = {0, 700000 + times % 7 * 90000};
        nanosleep(&pause, NULL);
        double begin = used_ms();
        what(times);
        double used = used_ms() - begin;
        if (used > worst) worst = used;
    }
    stop = 1;
    if (worst > MOST_MS) TEST_FAIL("one call used %.0f ms of the processor", worst);
    fflush(stdout);
    printf("ok 1\n");
    fflush(stdout);
    _exit(0);  // the others need not be scheduled any more
}
TEST(fifo_malloc) { beside_others(swap_mail, SCHED_FIFO, SCHED_OTHER); }
TEST(fifo_trim) { beside_others(trim, SCHED_FIFO, SCHED_OTHER); }
TEST(fifo_fork) { beside_others(forks, SCHED_FIFO, SCHED_OTHER); }
TEST(fifo_info) { beside_others(info, SCHED_FIFO, SCHED_OTHER); }
TEST(fifo_threads) { beside_others(threads, SCHED_FIFO, SCHED_OTHER); }
TEST(fifo_huge) { beside_others(huge, SCHED_FIFO, SCHED_OTHER); }
TEST(round_robin_fork) { beside_others(forks, SCHED_RR, SCHED_OTHER); }
TEST(normal_beside_idle_fork) { beside_others(forks, SCHED_OTHER, SCHED_IDLE); }
TEST(normal_beside_idle_trim) { beside_others(trim, SCHED_OTHER, SCHED_IDLE); }

TEST_MAIN()
