// SPDX-License-Identifier: MIT
// ticks.h: a clock for single calls, and histograms of what it says.
#ifndef BENCH_TICKS_H
#define BENCH_TICKS_H

#include "scenario.h"

#if defined(__x86_64__)
#include <x86intrin.h>
ALWAYS_INLINE uint64_t ticks(void) {
    unsigned aux;
    const uint64_t t = __rdtscp(&aux);  // waits for what comes before
    _mm_lfence();
    return t;
}
#else
ALWAYS_INLINE uint64_t ticks(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
#endif

static inline double ns_per_tick(void) {
    const double start = bench_now();
    const uint64_t from = ticks();
    while (bench_now() - start < 0.1) {}
    return (bench_now() - start) * 1e9 / (double)(ticks() - from);
}

// 64 buckets to each power of two: within 1.6 %.
enum { BUCKETS_PER_OCTAVE = 64,
    BUCKETS = BUCKETS_PER_OCTAVE * 40 };
typedef struct histogram {
    uint64_t counts[BUCKETS], calls, longest, sum;
} histogram_t;

static inline unsigned bucket_of(uint64_t t) {
    if (t < BUCKETS_PER_OCTAVE) return (unsigned)t;
    const unsigned log = 63u - (unsigned)__builtin_clzll(t);
    const unsigned b = (log - 5) * BUCKETS_PER_OCTAVE + (unsigned)((t >> (log - 6)) & (BUCKETS_PER_OCTAVE - 1));
    return b < BUCKETS ? b : BUCKETS - 1;
}
static inline uint64_t bucket_begin(unsigned b) {
    return b < BUCKETS_PER_OCTAVE
               ? b
               : (uint64_t)(BUCKETS_PER_OCTAVE + b % BUCKETS_PER_OCTAVE) << (b / BUCKETS_PER_OCTAVE - 1);
}

static inline void histogram_count(histogram_t *h, uint64_t t) {
    h->counts[bucket_of(t)]++;
    h->calls++;
    h->sum += t;
    if (t > h->longest) h->longest = t;
}

static inline void histogram_add(histogram_t *to, const histogram_t *h) {
    for (unsigned b = 0; b < BUCKETS; b++) to->counts[b] += h->counts[b];
    to->calls += h->calls;
    to->sum += h->sum;
    if (h->longest > to->longest) to->longest = h->longest;
}

// Ticks that this part of the calls did not exceed.
static inline uint64_t histogram_percentile(const histogram_t *h, double part) {
    uint64_t sum = 0;
    for (unsigned b = 0; b < BUCKETS; b++) {
        sum += h->counts[b];
        if (sum && (double)sum >= part * (double)h->calls) return bucket_begin(b);
    }
    return h->longest;
}

#endif
