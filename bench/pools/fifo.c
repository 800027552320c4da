// SPDX-License-Identifier: MIT
// fifo: the three loops of the FIFO's designers.
//   -w 1  one block at a time: allocated and freed
//   -w 2  an array of -t live blocks walked in order, many times: free what is there, allocate anew
//   -w 3  the same at random places
//   -w 4  as 2, in the order of a queue that is overtaken: up to 16 places off
// --with malloc, fifo, fifo-call, or nothing: no allocator, all blocks are one buffer: what the loop itself costs.
// Each -n allocations of -z bytes, of which the first 8 are written and read.
#include <quarry/fifo.h>

#include "pool_bench.h"

static quarry_pool_t *pool;

static inline __attribute__((always_inline)) void *get(int kind, size_t size) {
    static uint64_t buffer[1024];
    if (kind == 3) return buffer;
    return kind == 0 ? malloc(size) : kind == 1 ? quarry_fifo_alloc(pool, size, 8, 0)
                                                : quarry_pool_alloc(pool, size, 8, 0);
}
static inline __attribute__((always_inline)) void put(int kind, void *p, size_t size) {
    if (kind == 0) free(p);
    else if (kind == 1) quarry_fifo_free(pool, p, size);
    else if (kind == 2) quarry_pool_free(pool, p, size);
}

static inline __attribute__((always_inline)) uint64_t replace(int kind, uint64_t **place, size_t size, uint64_t i) {
    uint64_t check = 0, *p = *place;
    if (p) {
        check = *p;
        put(kind, p, size);
    }
    p = *place = get(kind, size);
    if (__builtin_expect(!p, 0)) bench_fail("out of memory");
    *p = i;
    return check;
}

static inline __attribute__((always_inline)) uint64_t loop(int kind, const pool_bench_t *b, uint64_t **places) {
    uint64_t check = 0, state = 1, live = b->threads;
    const size_t size = b->size;
    if (b->which == 1) {
        for (uint64_t i = 0; i < b->n; i++) {
            uint64_t *p = get(kind, size);
            if (__builtin_expect(!p, 0)) bench_fail("out of memory");
            *(volatile uint64_t *)p = i;
            put(kind, p, size);
        }
    } else if (b->which == 2) {
        for (uint64_t i = 0, at = 0; i < b->n; i++) {
            check += replace(kind, &places[at], size, i);
            if (++at == live) at = 0;
        }
    } else {
        for (uint64_t i = 0; i < b->n; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            uint64_t at = b->which == 3 ? ((state >> 32) * live) >> 32 : (i + (state >> 60)) % live;
            check += replace(kind, &places[at], size, i);
        }
    }
    return check;
}

int main(int argc, char **argv) {
    pool_bench_t b = {.scenario = "fifo", .with = "fifo", .n = 20000000, .size = 64, .threads = 100000, .which = 1};
    pool_bench_options(&b, argc, argv);
    // fifo-call: through the pool's table of operations, as p_new does; fifo: inline.
    int kind = !strcmp(b.with, "malloc") ? 0 : !strcmp(b.with, "fifo-call") ? 2
                                           : !strcmp(b.with, "nothing")     ? 3
                                                                            : 1;
    pool = quarry_fifo_create(NULL);
    uint64_t **places = calloc(b.threads, sizeof *places), payload = 0;
    if (!pool || !places || b.size < 8 || b.size > 8192) bench_fail("out of memory, or -z not from 8 to 8192");
    memset(places, 0, b.threads * sizeof *places);
    pool_bench_phase(1);
    double start = bench_now(), cpu = pool_bench_cpu();
    uint64_t check = kind == 0 ? loop(0, &b, places) : kind == 1 ? loop(1, &b, places)
                                                   : kind == 2   ? loop(2, &b, places)
                                                                 : loop(3, &b, places);
    cpu = pool_bench_cpu() - cpu;
    double seconds = bench_now() - start;
    for (unsigned i = 0; i < b.threads; i++) payload += places[i] ? b.size : 0;
    char phase[32], more[64];
    snprintf(more, sizeof more, ",\"cpu_seconds\":%.6f", cpu);
    snprintf(phase, sizeof phase, "loop%d", b.which);
    pool_bench_line(&b, phase, seconds, b.n, payload, more);
    return check == 42;  // so that it is computed
}
