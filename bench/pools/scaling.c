// SPDX-License-Identifier: MIT
// scaling: what threads cost each other: -t threads make each -n blocks of -z bytes on the thread's own stack (--with scope), or by
// malloc and free: a function with four blocks, called again and again. What is measured is the time from when all are
// ready until the last one is done, the best of -r rounds: short ones, so that some are not disturbed by what else runs. Beside it the processor time,
// which does not count the waiting for a processor.
#include <quarry/scope.h>

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "pool_bench.h"

typedef struct shared {
    const pool_bench_t *b;
    void (*call)(size_t size, uint64_t *sum);
    _Atomic unsigned ready;
    pthread_mutex_t lock;
    double first, last, cpu;  // [lock] when the first began and the last ended; processor time of all
} shared_t;

static inline void touch(char *p, size_t size) {
    if (__builtin_expect(!p, 0)) bench_fail("out of memory");
    p[0] = p[size - 1] = 1;
    __asm__ volatile("" ::"r"(p)
                     : "memory");
}

static __attribute__((noinline)) void scope_call(size_t size, uint64_t *sum) {
    char *p[4];
    t_scope;
    for (int i = 0; i < 4; i++) touch(p[i] = (char *)quarry_stack_bump(&quarry_thread_stack, size, 8, 0), size);
    for (int i = 4; i--;) *sum += (uint64_t)p[i][0];
}
static __attribute__((noinline)) void malloc_call(size_t size, uint64_t *sum) {
    char *p[4];
    for (int i = 0; i < 4; i++) touch(p[i] = (char *)malloc(size), size);
    for (int i = 4; i--;) *sum += (uint64_t)p[i][0], free(p[i]);
}

static void *body(void *arg) {
    bench_thread_t *t = arg;
    shared_t *s = t->shared;
    uint64_t sum = 0;
    t_scope;                                                   // those of the calls lie within it, as in a program
    for (int i = 0; i < 1000; i++) s->call(s->b->size, &sum);  // its stack, its cache
    // Not a barrier, from which threads wake one by one.
    for (atomic_fetch_add(&s->ready, 1); atomic_load_explicit(&s->ready, memory_order_acquire) < s->b->threads;) sched_yield();
    const double start = bench_now(), cpu = pool_bench_cpu();
    for (uint64_t i = 0; i < s->b->n / 4; i++) s->call(s->b->size, &sum);
    const double used = pool_bench_cpu() - cpu, end = bench_now();
    pthread_mutex_lock(&s->lock);
    if (!s->first || start < s->first) s->first = start;
    if (end > s->last) s->last = end;
    s->cpu += used;
    pthread_mutex_unlock(&s->lock);
    t->check = sum;
    return NULL;
}

int main(int argc, char **argv) {
    pool_bench_t b = {.scenario = "scaling", .with = "scope", .n = 200000, .size = 48, .rounds = 500, .threads = 1};
    pool_bench_options(&b, argc, argv);
    const bool scope = !strcmp(b.with, "scope");
    if (!scope && strcmp(b.with, "malloc") != 0) bench_fail("--with malloc or scope");
    if (!b.threads || b.threads > 1024 || b.size < 8 || b.n < 4) bench_fail("-t 1..1024, -z 8.., -n 4..");
    const bench_t shape = {"scaling", b.threads, b.n, 1, 0};
    double best = 1e9, best_cpu = 1e9;
    pool_bench_phase(b.rounds);
    for (unsigned r = 0; r < b.rounds; r++) {
        shared_t s = {.b = &b, .call = scope ? scope_call : malloc_call, .lock = PTHREAD_MUTEX_INITIALIZER};
        if (bench_threads(&shape, body, &s, b.n * b.threads, r) != b.threads * (b.n / 4 + 1000) * 4) bench_fail("a block was not written");
        if (s.last - s.first < best) best = s.last - s.first;
        if (s.cpu < best_cpu) best_cpu = s.cpu;
    }
    const uint64_t operations = b.n / 4 * 4 * b.threads;
    char phase[16], more[128];
    snprintf(phase, sizeof phase, "%u", b.threads);
    snprintf(more, sizeof more, ",\"threads\":%u,\"cpu_ns_per_operation\":%.3f", b.threads, best_cpu * 1e9 / (double)operations);
    pool_bench_line(&b, phase, best, operations, 0, more);
    return 0;
}
