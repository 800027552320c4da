// SPDX-License-Identifier: MIT
// bench.h: what the ten workloads share: options, random numbers, blocks that are written and
// checked, threads, and the one line of JSON at the end. Plain malloc and free; which malloc that is,
// is up to who runs the program.
#ifndef BENCH_H
#define BENCH_H

#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../common/counters.h"

typedef struct bench {
    const char *name;
    unsigned threads;
    uint64_t ops;   // in all; each thread does its share
    uint64_t seed;  // the same seed is the same work, whatever the malloc
    double start;
} bench_t;

static inline double bench_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline void bench_fail(const char *what) {
    fprintf(stderr, "FAILED: %s\n", what);
    abort();
}

// ---- counters of the phase that is measured ----

static counters_t bench_counters;

// With QUARRY_BENCH_COUNTERS those of the processor as well, which slow down threads that start and wait.
static inline void bench_count(void) { counters_begin(&bench_counters, getenv("QUARRY_BENCH_COUNTERS") ? counters_hardware : NULL); }

// ---- begin and end ----

// --threads N --ops N --seed N; the clock starts.
static inline bench_t bench_begin(int argc, char **argv, const char *name, unsigned threads, uint64_t ops) {
    bench_t b = {name, threads, ops, 1, 0};
    for (int i = 1; i < argc; i += 2) {
        char *end = NULL;
        const uint64_t value = i + 1 < argc ? strtoull(argv[i + 1], &end, 10) : 0;
        const int good = end && end != argv[i + 1] && !*end && value;
        if (good && !strcmp(argv[i], "--threads") && value <= 256) b.threads = (unsigned)value;
        else if (good && !strcmp(argv[i], "--ops")) b.ops = value;
        else if (good && !strcmp(argv[i], "--seed")) b.seed = value;
        else {
            fprintf(stderr, "usage: %s [--threads 1..256] [--ops N] [--seed N]\n", argv[0]);
            exit(2);
        }
    }
    bench_count();
    b.start = bench_now();
    return b;
}

// The process's peak from the kernel's view of this program alone: getrusage would start with that of
// the process that started us.
static inline long bench_peak_kib(void) {
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "VmHWM: %ld", &kib) == 1) break;
    }
    if (file) fclose(file);
    return kib;
}

// `check` is a result of the work: it must not depend on the malloc.
static inline int bench_end(const bench_t *b, uint64_t check) {
    const double seconds = bench_now() - b->start;
    char counted[COUNTERS_TEXT];
    counters_end(&bench_counters, counted);
    printf("{\"name\":\"%s\",\"threads\":%u,\"seed\":%" PRIu64 ",\"ops\":%" PRIu64 ",\"seconds\":%.6f,\"peak_kib\":%ld,\"check\":\"%016" PRIx64 "\",\"counters\":{%s}}\n",
        b->name, b->threads, b->seed, b->ops, seconds, bench_peak_kib(), check, counted);
    return fflush(stdout) ? 1 : 0;
}

// ---- random numbers ----

static inline uint64_t bench_random(uint64_t *state) {
    uint64_t x = (*state += 0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

// In [low, high], from 32 random bits.
static inline size_t bench_between(uint32_t bits, size_t low, size_t high) {
    return low + (size_t)(((uint64_t)bits * (high - low + 1)) >> 32);
}

// In [low, 2 * low << octaves): each octave equally likely, as block sizes of programs are, roughly.
static inline size_t bench_octaves(uint64_t random, size_t low, unsigned octaves) {
    const size_t base = low << bench_between((uint32_t)(random >> 32), 0, octaves);
    return bench_between((uint32_t)random, base, 2 * base - 1);
}

// Small objects: half of them up to 64 bytes, one in twenty above 400.
static inline size_t bench_small_size(uint64_t random) {
    const uint32_t kind = (uint32_t)(random >> 32) % 100, bits = (uint32_t)random;
    if (kind < 50) return bench_between(bits, 8, 64);
    if (kind < 80) return bench_between(bits, 64, 160);
    if (kind < 95) return bench_between(bits, 160, 400);
    return bench_between(bits, 400, 1000);
}

// ---- blocks ----

typedef struct block {
    char *ptr;
    size_t size;  // >= 8, or 0: none
} block_t;

// Write every cache line of a small block, every page of what is beyond, and the last bytes.
static inline void block_fill(block_t b) {
    const uint64_t tag = (uint64_t)(uintptr_t)b.ptr ^ b.size;
    for (size_t i = 0; i + 8 <= b.size; i += i < 4096 ? 64 : 4096) memcpy(b.ptr + i, &tag, 8);
    memcpy(b.ptr + b.size - 8, &tag, 8);
}

static inline block_t block_new(size_t size) {
    const block_t b = {(char *)malloc(size), size};
    if (!b.ptr) bench_fail("out of memory");
    block_fill(b);
    return b;
}

static inline void block_check(block_t b) {
    const uint64_t tag = (uint64_t)(uintptr_t)b.ptr ^ b.size;
    if (memcmp(b.ptr, &tag, 8) != 0 && b.size >= 16) bench_fail("a block's first bytes have changed");
    if (memcmp(b.ptr + b.size - 8, &tag, 8) != 0) bench_fail("a block's last bytes have changed");
}

static inline void block_free(block_t b) {
    if (!b.size) return;
    block_check(b);
    free(b.ptr);
}

// ---- threads ----

typedef struct bench_thread {
    const bench_t *bench;
    unsigned number;
    uint64_t ops;     // this thread's share
    uint64_t random;  // and its random numbers
    uint64_t check;   // its part of the result
    void *shared;
    pthread_t id;
} bench_thread_t;

// Run body in as many threads as asked for (in this one, if one) and wait; the sum of their checks.
static inline uint64_t bench_threads(const bench_t *b, void *(*body)(void *), void *shared, uint64_t ops, uint64_t salt) {
    bench_thread_t *threads = (bench_thread_t *)calloc(b->threads, sizeof *threads);
    uint64_t sum = 0;
    if (!threads) bench_fail("out of memory");
    for (unsigned i = 0; i < b->threads; i++) {
        bench_thread_t *t = &threads[i];
        t->bench = b;
        t->number = i;
        t->ops = ops / b->threads;
        t->random = (b->seed * 1000003 + salt) * 1000003 + i;
        t->shared = shared;
        if (b->threads == 1) body(t);
        else if (pthread_create(&t->id, NULL, body, t)) bench_fail("no thread");
    }
    for (unsigned i = 0; i < b->threads; i++) {
        if (b->threads > 1) pthread_join(threads[i].id, NULL);
        sum += threads[i].check;
    }
    free(threads);
    return sum;
}

#endif
