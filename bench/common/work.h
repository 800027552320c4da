// SPDX-License-Identifier: MIT
// work.h: what programs of benchmarks are made of: a clock, random numbers, sizes as programs have them, blocks that
// are written and checked. The same seed is the same work under every malloc.
#ifndef BENCH_WORK_H
#define BENCH_WORK_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline double bench_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// Status 1, at once: what runs at a usual exit may need the heap. A signal would look like a crash.
static inline __attribute__((noreturn)) void bench_fail(const char *what) {
    fprintf(stderr, "FAILED: %s\n", what);
    _Exit(1);
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

#endif
