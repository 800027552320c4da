// SPDX-License-Identifier: MIT
// Blocks made by one thread and freed by another: pipelines, phases, and what stays behind. A heap
// that loses remote frees grows without bound; these tests bound it.
#include <pthread.h>
#include <sched.h>

#include "stress/shadow.h"

// ---- a lock-free queue for one producer and one consumer ------------------------------------------

enum { QUEUE = 512 };
typedef struct queue {
    _Atomic size_t head, tail;
    shadow_t slot[QUEUE];
} queue_t;

static void push(queue_t *q, shadow_t s) {
    size_t tail = atomic_load_explicit(&q->tail, memory_order_relaxed);
    while (tail - atomic_load_explicit(&q->head, memory_order_acquire) == QUEUE) sched_yield();
    q->slot[tail % QUEUE] = s;
    atomic_store_explicit(&q->tail, tail + 1, memory_order_release);
}
static shadow_t pop(queue_t *q) {
    size_t head = atomic_load_explicit(&q->head, memory_order_relaxed);
    while (atomic_load_explicit(&q->tail, memory_order_acquire) == head) sched_yield();
    shadow_t s = q->slot[head % QUEUE];
    atomic_store_explicit(&q->head, head + 1, memory_order_release);
    return s;
}

static long resident_mib(void) {
    long all = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f && fscanf(f, "%ld %ld", &all, &resident) == 2);
    fclose(f);
    return resident * (sysconf(_SC_PAGESIZE) / 1024) / 1024;
}

// ---- producer and consumer --------------------------------------------------------------------------

enum { PIPES = 32 };
typedef struct pipe_end {
    queue_t *from, *to;  // NULL: the first, the last of the pipeline
    uint64_t random;
    size_t size;  // 0: of all sizes
} pipe_end_t;
static queue_t queue[PIPES];

static void *stage(void *arg) {
    pipe_end_t *e = arg;
    for (long i = 0; i < stress_ops; i++) {
        shadow_t s = {0};
        if (e->from) {
            s = pop(e->from);
        } else if (e->size) {
            shadow_set(&s, m.malloc(e->size), e->size, shadow_least(e->size));
        } else {
            shadow_make(&s, &e->random);
        }
        if (e->to) {
            if (e->from && i % 4 == 0) shadow_resize(&s, &e->random);
            push(e->to, s);
        } else {
            shadow_free(&s, &e->random);
        }
    }
    return NULL;
}

// Pipelines of `stages` threads, as many as there are threads for.
static void pipelines(int stages, size_t size) {
    static pipe_end_t end[64];
    pthread_t thread[64];
    int lines = (int)(stress_threads / stages) ? (int)(stress_threads / stages) : 1, n = 0;
    for (int l = 0; l < lines && n + stages <= 64; l++) {
        for (int k = 0; k < stages; k++, n++) {
            end[n] = (pipe_end_t){k ? &queue[n % PIPES] : NULL, k + 1 < stages ? &queue[(n + 1) % PIPES] : NULL,
                test_seed + (uint64_t)n, size};
        }
        if (n + stages > PIPES) break;
    }
    for (int i = 0; i < n; i++) CHECK_EQ(pthread_create(&thread[i], NULL, stage, &end[i]), 0);
    for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
}

TEST(producer_consumer) { pipelines(2, 0); }
TEST(three_stages) { pipelines(3, 0); }

TEST(producer_consumer_stays_small) {
    static const size_t sizes[] = {16, 200, 1024, 9000, 65536};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        pipelines(2, sizes[i]);
        long before = resident_mib();
        // To see it grow, and a sanitizer's own memory would hide that.
        for (int round = 0; !FAMILY_SANITIZED && round < 3; round++) pipelines(2, sizes[i]);
        long after = resident_mib();
        if (!FAMILY_SANITIZED && after > before + 80)
            TEST_FAIL("size %zu: from %ld to %ld MiB", sizes[i], before, after);
    }
}

// ---- phases: all together build, then all free what their neighbour built ------------------------

enum { PER_PHASE = 3000 };
static pthread_barrier_t barrier;
static shadow_t built[64][PER_PHASE];
static long live;

static void *phases(void *arg) {
    long k = (long)(uintptr_t)arg;
    uint64_t random = test_seed + (uint64_t)k;
    long rounds = stress_ops / PER_PHASE + 1;
    for (long round = 0; round < rounds; round++) {
        size_t limit = (size_t)16 << (round * 3 + (long)(test_seed % 3)) % 12;  // another size each time
        for (int i = 0; i < PER_PHASE; i++) {
            size_t n = 1 + test_random(&random) % limit;
            shadow_set(&built[k][i], m.malloc(n), n, shadow_least(n));
        }
        pthread_barrier_wait(&barrier);
        long whose = (k + round) % live;
        for (int i = 0; i < PER_PHASE; i++) shadow_free(&built[whose][(i * 7 + (int)round) % PER_PHASE], &random);
        pthread_barrier_wait(&barrier);
        for (int i = 0; i < PER_PHASE; i++) CHECK(!built[k][i].p);
    }
    return NULL;
}

TEST(build_and_free_in_phases) {
    live = stress_threads > 16 ? 16 : stress_threads;
    pthread_t thread[64];
    CHECK_EQ(pthread_barrier_init(&barrier, NULL, (unsigned)live), 0);
    for (long k = 0; k < live; k++) CHECK_EQ(pthread_create(&thread[k], NULL, phases, (void *)(uintptr_t)k), 0);
    for (long k = 0; k < live; k++) pthread_join(thread[k], NULL);
    pthread_barrier_destroy(&barrier);
}

// ---- threads that end while their blocks are being freed by others ----------------------------------

static queue_t leaving;
static void *leave_blocks(void *arg) {
    uint64_t random = (uint64_t)(uintptr_t)arg;
    for (int i = 0; i < 100; i++) {
        shadow_t s = {0};
        shadow_make(&s, &random);
        push(&leaving, s);
    }
    return NULL;
}
static void *make_and_end(void *arg) {
    for (long i = 0; i < *(long *)arg; i++) {  // one after the other: one producer at a time
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, NULL, leave_blocks, (void *)(uintptr_t)(test_seed + (uint64_t)i)), 0);
        pthread_join(thread, NULL);
    }
    return NULL;
}

TEST(owner_ends_during_frees) {
    long count = stress_ops / 100 + 1;
    uint64_t random = test_seed;
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, make_and_end, &count), 0);
    long before = 0;
    for (long i = 0; i < count * 100; i++) {
        shadow_t s = pop(&leaving);
        shadow_free(&s, &random);
        if (i == count * 25) before = resident_mib();
    }
    pthread_join(thread, NULL);
    long after = resident_mib();
    if (!FAMILY_SANITIZED && after > before + 80) TEST_FAIL("from %ld to %ld MiB", before, after);
}

int main(int argc, char **argv) { return stress_main(argc, argv); }
