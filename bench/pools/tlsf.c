// SPDX-License-Identifier: MIT
// tlsf.c: how long single calls take, at the median and at the far end. A mixed load with random sizes; each call is timed
// alone, and what comes between is not.
//
//   tlsf --with tlsf|malloc [-n CALLS] [-z MIB] [-w 0|1|2]
//
// -z: of the heap, which is half full in the mean. The pool's is a buffer that was touched before, as a program with
// deadlines has it; malloc is warmed up by the same load. One line each for alloc, free and resize (-w: for one of them
// alone): nanoseconds at 50, 99, 99.9 and 99.99 per cent, and the longest. Calls in which the kernel gave the processor to
// another program are left out and counted ("preempted"); other interrupts are in it: compare what ran in turns on the
// same machine.
#include <quarry/tlsf.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "pool_bench.h"

// ---- a clock and a histogram ----------------------------------------------------------------------------------------

#if defined(__x86_64__)
#include <x86intrin.h>
static inline uint64_t ticks(void) {
    unsigned aux;
    uint64_t t = __rdtscp(&aux);  // waits for what comes before
    _mm_lfence();
    return t;
}
#else
static inline uint64_t ticks(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
#endif

static double ns_per_tick(void) {
    const double start = bench_now();
    const uint64_t from = ticks();
    while (bench_now() - start < 0.1) {}
    return (bench_now() - start) * 1e9 / (double)(ticks() - from);
}

// 64 buckets to each power of two: within 1.6 %.
#define SUB 64
#define BUCKETS (SUB * 40)
typedef struct histogram {
    uint64_t counts[BUCKETS], calls, longest;
    double seconds;
} histogram_t;

static unsigned bucket(uint64_t t) {
    if (t < SUB) return (unsigned)t;
    const unsigned log = 63u - (unsigned)__builtin_clzll(t);
    const unsigned b = (log - 5) * SUB + (unsigned)((t >> (log - 6)) & (SUB - 1));
    return b < BUCKETS ? b : BUCKETS - 1;
}
static uint64_t lower_end(unsigned b) { return b < SUB ? b : (uint64_t)(SUB + b % SUB) << (b / SUB - 1); }

// How often this thread lost its processor so far. Asked for now and then, and after each call that took long; so a long
// call is left out without reason only if it lies within SYNC calls behind a loss outside of calls.
#define SYNC 64
#define LONG_TICKS 4000
static long losses_known;
static uint64_t preempted;
static int lost_processor(void) {
    struct rusage u;
    getrusage(RUSAGE_THREAD, &u);
    const int more = u.ru_nivcsw != losses_known;
    losses_known = u.ru_nivcsw;
    return more;
}

static void count(histogram_t *h, uint64_t t) {
    if (t > LONG_TICKS && lost_processor()) {
        preempted++;
        return;
    }
    h->counts[bucket(t)]++;
    h->calls++;
    if (t > h->longest) h->longest = t;
}
static uint64_t percentile(const histogram_t *h, double part) {
    uint64_t sum = 0;
    for (unsigned b = 0; b < BUCKETS; b++) {
        sum += h->counts[b];
        if ((double)sum >= part * (double)h->calls) return lower_end(b);
    }
    return h->longest;
}

// ---- the load ---------------------------------------------------------------------------------------------------------

enum { ALLOC,
    FREE,
    RESIZE,
    KINDS };
static const char *const kinds[KINDS] = {"alloc", "free", "resize"};
static histogram_t histograms[KINDS];
static quarry_pool_t *pool;  // NULL: malloc

typedef struct slot {
    char *p;
    size_t size;
} slot_t;

static void touch(const slot_t *s) {
    for (size_t i = 0; i < s->size; i += 4096) s->p[i] = 1;
}

static void one_call(slot_t *s, uint64_t *random, int timed) {
    const uint64_t r = bench_random(random);
    const size_t size = bench_octaves(r, 16, 11);  // to 64 KiB
    int kind = !s->p ? ALLOC : (r >> 60) < 12 ? FREE
                                              : RESIZE;
    char *p = s->p;
    const uint64_t start = ticks();
    if (kind == ALLOC) p = pool ? quarry_pool_alloc(pool, size, 16, 0) : malloc(size);
    else if (kind == RESIZE) p = pool ? quarry_pool_resize(pool, p, s->size, size, 16, 0) : realloc(p, size);
    else if (pool) quarry_pool_free(pool, p, s->size);
    else free(p);
    const uint64_t end = ticks();
    if (timed) count(&histograms[kind], end - start);
    if (kind == FREE) *s = (slot_t){NULL, 0};
    else if (p) {
        *s = (slot_t){p, size};
        touch(s);
    } else if (!pool) bench_fail("out of memory");
}

int main(int argc, char **argv) {
    pool_bench_t b = {.scenario = "latency", .with = "tlsf", .n = 10000000, .size = 256, .which = -1};
    pool_bench_options(&b, argc, argv);
    const size_t bytes = b.size << 20;
    const size_t slots = bytes / 2 / 8200 * 7 / 4;  // the mean of the sizes, and four in seven in use
    char *buffer = NULL;
    if (!strcmp(b.with, "tlsf")) {
        buffer = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (buffer == MAP_FAILED) bench_fail("no memory");
        pool = quarry_tlsf_create(&(quarry_tlsf_options_t){.buffer = buffer, .buffer_bytes = bytes, .flags = QUARRY_TLSF_FIXED});
        if (!pool) bench_fail("no pool");
    }
    slot_t *slot = mmap(NULL, slots * sizeof *slot, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    uint64_t random = 1;
    for (uint64_t i = 0; i < slots * 8; i++) one_call(&slot[bench_random(&random) % slots], &random, 0);
    const double ns = ns_per_tick();
    pool_bench_phase(1);
    const double start = bench_now();
    for (uint64_t i = 0; i < b.n; i++) {
        if (i % SYNC == 0) lost_processor();
        one_call(&slot[bench_random(&random) % slots], &random, 1);
    }
    const double seconds = bench_now() - start;
    uint64_t payload = 0;
    for (size_t i = 0; i < slots; i++) payload += slot[i].size;
    for (int k = 0; k < KINDS; k++) {
        const histogram_t *h = &histograms[k];
        if (b.which >= 0 && b.which != k) continue;
        char more[300];
        snprintf(more, sizeof more, ",\"p50_ns\":%.0f,\"p99_ns\":%.0f,\"p999_ns\":%.0f,\"p9999_ns\":%.0f,\"max_ns\":%.0f,\"preempted\":%" PRIu64, (double)percentile(h, 0.5) * ns,
            (double)percentile(h, 0.99) * ns, (double)percentile(h, 0.999) * ns, (double)percentile(h, 0.9999) * ns, (double)h->longest * ns, preempted);
        pool_bench_line(&b, kinds[k], seconds * (double)h->calls / (double)b.n, h->calls, payload, more);
    }
    quarry_pool_destroy(pool);
    return 0;
}
