// SPDX-License-Identifier: MIT
// Threads that had a burst and then wait for work, and a thread that only frees. What they keep is measured after some
// seconds of rest.
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>

#include "field.h"

static pthread_barrier_t done;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static sem_t never;
typedef void burst_t(unsigned seed);
static burst_t *burst;

// In turn, blocks of all sizes up to 60 KB, a megabyte of each; all are freed, in order or not.
static void blocks(unsigned seed, int shuffle) {
    enum { MOST = 1500 };
    static __thread char *p[MOST];
    for (size_t n = 16; n < 60000; n = n * 9 / 8 + 16) {
        int count = (int)(2000000 / n);
        if (count > MOST) count = MOST;
        for (int i = 0; i < count; i++) p[i] = memset(malloc(n), 1, n);
        for (int i = count - 1; shuffle && i > 0; i--) {
            seed = seed * 1103515245 + 12345;
            int j = (int)((seed >> 8) % (unsigned)(i + 1));
            char *t = p[i];
            p[i] = p[j];
            p[j] = t;
        }
        for (int i = 0; i < count; i++) free(p[i]);
    }
}
static void in_order(unsigned seed) { blocks(seed, 0); }
static void shuffled(unsigned seed) { blocks(seed, 1); }
static void large_only(unsigned seed) {
    for (int i = 0; i < 40; i++) free(memset(opaque(malloc(65536u + seed % 7 * 50000)), 1, 65536));
}
static void medium_only(unsigned seed) {
    (void)seed;
    many(20000, 60);
    many(40000, 60);
}
static void *worker(void *seed) {
    pthread_mutex_lock(&turn);
    burst((unsigned)(uintptr_t)seed);
    pthread_mutex_unlock(&turn);
    pthread_barrier_wait(&done);
    sem_wait(&never);
    return NULL;
}
static void idle(burst_t *what, int count, double most_mib) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 << 10);
    pthread_barrier_init(&done, NULL, (unsigned)count + 1);
    burst = what;
    double before = memory_mib(1);
    for (int i = 0; i < count; i++) {
        pthread_t t;
        CHECK_EQ(pthread_create(&t, &small, worker, (void *)(uintptr_t)i), 0);
    }
    pthread_barrier_wait(&done);
    double rest = 0;
    for (int i = 0; i < 12 * patience(); i++) {  // six seconds, or less if it is good before
        usleep(500000);
        rest = memory_mib(1) - before;
        if (rest <= most_mib) break;
    }
    if (rest > most_mib) TEST_FAIL("%d threads with nothing live keep %.0f MiB, at most %.0f", count, rest, most_mib);
}
TEST(order_100) { idle(in_order, 100, 65); }
TEST(shuffled_100) { idle(shuffled, 100, 65); }
TEST(shuffled_300) { idle(shuffled, 300, 65); }
TEST(large_300) { idle(large_only, 300, 65); }
TEST(medium_300) { idle(medium_only, 300, 65); }

// One thread frees what four make.
enum { QUEUE = 1024,
    LIVE = 20000,
    MAKERS = 4 };
static void *_Atomic queue[QUEUE];
static _Atomic unsigned long head, tail;
static _Atomic int stop;
static pthread_mutex_t one_maker = PTHREAD_MUTEX_INITIALIZER;
static void *freer(void *unused) {
    for (;;) {
        unsigned long t = tail;
        void *p = t == head ? NULL : queue[t % QUEUE];
        if (p) {
            queue[t % QUEUE] = NULL;
            tail = t + 1;
            free(p);
        } else if (stop) return unused;
        else sched_yield();
    }
}
static void *maker(void *seed) {
    char **live = calloc(LIVE, sizeof *live);
    unsigned s = (unsigned)(uintptr_t)seed;
    for (int i = 0; i < 200000; i++) {
        s = s * 1103515245 + 12345;
        unsigned k = (s >> 8) % LIVE;
        char *old = live[k];
        live[k] = memset(malloc(592), 1, 592);
        if (!old) continue;
        pthread_mutex_lock(&one_maker);
        while (head - tail >= QUEUE) sched_yield();
        queue[head % QUEUE] = old;
        head++;
        pthread_mutex_unlock(&one_maker);
    }
    for (int k = 0; k < LIVE; k++) free(live[k]);
    free(live);
    return NULL;
}
TEST(one_thread_frees) {
    pthread_t f, m[MAKERS];
    double before = memory_mib(1), peak = 0, live = (double)MAKERS * LIVE * 592 / 1048576;
    pthread_create(&f, NULL, freer, NULL);
    for (uintptr_t i = 0; i < MAKERS; i++) pthread_create(&m[i], NULL, maker, (void *)(i + 1));
    for (int i = 0; i < MAKERS; i++) {
        while (pthread_tryjoin_np(m[i], NULL)) {
            double now = memory_mib(1) - before;
            if (now > peak) peak = now;
            usleep(20000);
        }
    }
    stop = 1;
    pthread_join(f, NULL);
    if (peak > live * 2.5) TEST_FAIL("%.0f MiB live, %.0f MiB at the peak", live, peak);
}

TEST_MAIN()
