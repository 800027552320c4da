// SPDX-License-Identifier: MIT
// Threads come and go: their heaps are used again, what they leave behind can be freed, and what
// they allocate while they end is not lost. --threads=N short-lived threads in all.
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "api/family.h"

static long churn = 10000;

static double resident_mib(void) {
    long all = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f && fscanf(f, "%ld %ld", &all, &resident) == 2);
    fclose(f);
    return (double)(resident * sysconf(_SC_PAGESIZE)) / 1048576.0;
}

// `count` threads, at most `together` at a time.
static void run(long count, int together, void *(*body)(void *)) {
    enum { MAX = 512 };
    static pthread_t thread[MAX];
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 131072);
    CHECK(together <= MAX);
    for (long done = 0; done < count; done += together) {
        int now = count - done < together ? (int)(count - done) : together;
        for (int i = 0; i < now; i++)
            CHECK_EQ(pthread_create(&thread[i], &attr, body, (void *)(uintptr_t)(done + i)), 0);
        for (int i = 0; i < now; i++) CHECK_EQ(pthread_join(thread[i], NULL), 0);
    }
    pthread_attr_destroy(&attr);
}

// After one round to warm up, the others must cost nothing.
static void stays_small(long count, int together, void *(*body)(void *), double slack) {
    run(count / 4, together, body);
    double before = resident_mib();
    run(count, together, body);
    double after = resident_mib();
    printf("  from %.1f to %.1f MiB\n", before, after);
    if (!FAMILY_SANITIZED && after > before + slack)
        TEST_FAIL("%ld threads: from %.1f to %.1f MiB", count, before, after);
}

static void work(uint64_t seed, int count) {
    uint64_t random = seed + 1;
    void *p[64] = {0};
    for (int i = 0; i < count; i++) {
        size_t k = test_random(&random) % 64, n = (size_t)1 << test_random(&random) % 13;
        m.free(p[k]);
        p[k] = i % 3 ? m.malloc(n) : m.calloc(1, n);
        CHECK(p[k] != NULL);
        memset(p[k], 1, n);
    }
    for (int k = 0; k < 64; k++) m.free(p[k]);
}

static void *short_life(void *arg) {
    work((uint64_t)(uintptr_t)arg, 100);
    return NULL;
}
TEST(short_lives) { stays_small(churn, 4, short_life, 4); }

// ---- blocks that outlive their thread ---------------------------------------------------------------

enum { LEFT = 16384 };
static _Atomic(void *) left[LEFT];

static void *leave_and_take(void *arg) {
    uint64_t random = (uint64_t)(uintptr_t)arg + 1;
    for (int i = 0; i < 40; i++) {
        size_t n = 8 + test_random(&random) % 2000;
        unsigned char *p = m.malloc(n);
        size_t k = test_random(&random) % LEFT;
        memset(p, (int)(k % 255), 8);
        unsigned char *old = atomic_exchange(&left[k], p);
        if (!old) continue;
        for (int j = 0; j < 8; j++) CHECK_EQ(old[j], k % 255);
        m.free(old);
    }
    return NULL;
}
TEST(blocks_outlive_threads) {
    run(churn, 4, leave_and_take);  // until the table is full
    stays_small(churn, 4, leave_and_take, 8);
    for (int k = 0; k < LEFT; k++) m.free(atomic_exchange(&left[k], NULL));
}

// ---- many alive at once -----------------------------------------------------------------------------

static pthread_barrier_t all_here;
static void *meet(void *arg) {
    void *p = m.malloc(100), *large = m.malloc(70000);
    memset(p, 1, 100);
    *(char *)large = 1;
    pthread_barrier_wait(&all_here);
    work((uint64_t)(uintptr_t)arg, 20);
    m.free(p);
    m.free(large);
    return NULL;
}
TEST(many_at_once) {
    if (FAMILY_SANITIZED) TEST_SKIP("needs a build without sanitizers: their threads are too large");
    pthread_barrier_init(&all_here, NULL, 450);
    stays_small(1800, 450, meet, 24);  // a heap for each thread, not found again, would be 100 MiB
    pthread_barrier_destroy(&all_here);
}

// ---- destructors of thread-specific data ------------------------------------------------------------

static pthread_key_t key[4];
static _Atomic long destroyed;

// Allocates again in each round of destructors that there is.
static void destructor(void *value) {
    uintptr_t round = *(uintptr_t *)value;
    m.free(value);
    void *p = m.malloc(300);
    memset(p, 1, 300);
    m.free(p);
    destroyed++;
    if (round >= PTHREAD_DESTRUCTOR_ITERATIONS) return;
    for (int i = 0; i < 4; i++) {
        if (pthread_getspecific(key[i])) continue;
        uintptr_t *next = m.malloc(100 + 1000 * round);
        *next = round + 1;
        if (round + 1 == PTHREAD_DESTRUCTOR_ITERATIONS) {
            m.free(next);  // nobody will be called for it
            next = m.malloc(16);
            m.free(next);
            continue;
        }
        pthread_setspecific(key[i], next);
        break;
    }
}

static void *with_keys(void *arg) {
    for (int i = 0; i < 4; i++) {
        uintptr_t *value = m.malloc(100);
        *value = 1;
        pthread_setspecific(key[i], value);
    }
    work((uint64_t)(uintptr_t)arg, 20);
    return NULL;
}

// Threads that allocate for the first time when they end, in a given round of destructors.
typedef struct round {
    int now, wanted;
} round_t;
static pthread_key_t late_key;
static int wanted_round;
static _Atomic long late_uses;
static void first_use_in_round(void *value) {
    round_t *round = value;
    if (++round->now < round->wanted) {
        pthread_setspecific(late_key, value);
        return;
    }
    work(1, 20);
    late_uses++;
}
static void *only_late(void *arg) {
    (void)arg;
    static __thread round_t round;
    round = (round_t){0, wanted_round};
    pthread_setspecific(late_key, &round);
    return NULL;
}

// A thread takes ThreadSanitizer milliseconds.
enum { ENDING = FAMILY_TSAN ? 600 : 1800 };

TEST(key_destructors_allocate) {
    for (int i = 0; i < 4; i++) CHECK_EQ(pthread_key_create(&key[i], destructor), 0);
    stays_small(ENDING, 60, with_keys, 4);
    CHECK_GE(destroyed, 4 * ENDING);
    for (int i = 0; i < 4; i++) pthread_key_delete(key[i]);
}

TEST(first_use_in_a_destructor) {
    CHECK_EQ(pthread_key_create(&late_key, first_use_in_round), 0);
    for (wanted_round = 1; wanted_round < PTHREAD_DESTRUCTOR_ITERATIONS; wanted_round++) {
        long before = late_uses;
        stays_small(ENDING, 60, only_late, 4);
        CHECK_EQ(late_uses - before, ENDING + ENDING / 4);
    }
    pthread_key_delete(late_key);
}

// ---- other ways to end --------------------------------------------------------------------------------

static void *exits(void *arg) {
    work((uint64_t)(uintptr_t)arg, 10);
    pthread_exit(m.malloc(0) ? NULL : arg);
}
static _Atomic int done;  // never
static void *endless(void *arg) {
    while (!done) {
        void *p = m.malloc(1 + (size_t)(uintptr_t)arg % 5000);
        memset(p, 1, 1);
        m.free(p);
        pthread_testcancel();
    }
    return NULL;
}
TEST(cancelled_exited_detached) {
    for (long i = 0; i < churn / 50; i++) {
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, NULL, endless, (void *)(uintptr_t)(i * 37)), 0);
        if (i % 3 == 0) sched_yield();
        CHECK_EQ(pthread_cancel(thread), 0);
        void *result;
        CHECK_EQ(pthread_join(thread, &result), 0);
        CHECK(result == PTHREAD_CANCELED);
        CHECK_EQ(pthread_create(&thread, NULL, exits, (void *)(uintptr_t)i), 0);
        CHECK_EQ(pthread_join(thread, &result), 0);
        CHECK(result == NULL);
        CHECK_EQ(pthread_create(&thread, NULL, short_life, (void *)(uintptr_t)i), 0);
        CHECK_EQ(pthread_detach(thread), 0);
    }
    usleep(100000);
    work(3, 1000);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--threads=", 10)) churn = atol(argv[i] + 10);
    }
    return test_main(argc, argv);
}
