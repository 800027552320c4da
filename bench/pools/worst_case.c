// SPDX-License-Identifier: MIT
// worst_case: regular small blocks, and an oversized one now and then: what a search for chunks that gives back all it passes
// pays for. -n is the depth. --with stack (bounded search), greedy, or malloc, which frees each block.
#include <quarry/stack.h>

#include <stdbool.h>

#include "pool_bench.h"

enum { SMALL = 20000,
    SMALL_BYTES = 100,
    LARGE_BYTES = 80000,
    PAGE = 4096 };

static quarry_pool_t *pool;

static void *get(size_t size) {
    char *p = pool ? (char *)quarry_stack_alloc(pool, size, 1, 0) : (char *)malloc(size);
    if (!p) bench_fail("out of memory");
    p[0] = p[size - 1] = 1;
    return p;
}

static void once(uint64_t depth) {
    quarry_stack_frame_t *outer = (quarry_stack_frame_t *)calloc(depth, sizeof *outer), inner;
    void **large = (void **)calloc(depth, sizeof *large), *small[SMALL];
    if (!outer || !large) bench_fail("out of memory");
    for (uint64_t i = 0; i < depth; i++) {
        if (pool) quarry_stack_push(pool, &outer[i]), quarry_stack_push(pool, &inner);
        for (int k = 0; k < SMALL; k++) small[k] = get(SMALL_BYTES);
        if (pool) quarry_stack_pop(pool, &inner);
        else
            for (int k = SMALL; k--;) free(small[k]);
        large[i] = get(LARGE_BYTES + PAGE * depth);
    }
    for (uint64_t i = depth; i--;) {
        if (pool) quarry_stack_pop(pool, &outer[i]);
        else free(large[i]);
    }
    free(large);
    free(outer);
}

int main(int argc, char **argv) {
    pool_bench_t b = {.scenario = "worst_case", .with = "malloc", .n = 20, .size = SMALL_BYTES, .rounds = 5};
    pool_bench_options(&b, argc, argv);
    bool greedy = !strcmp(b.with, "greedy");
    if (!greedy && strcmp(b.with, "stack") != 0 && strcmp(b.with, "malloc") != 0) bench_fail("--with malloc, stack or greedy");
    double best = 1e9;
    quarry_pool_stats_t s = {0};
    pool_bench_phase(b.rounds);
    for (unsigned r = 0; r < b.rounds; r++) {
        double start = pool_bench_cpu();
        if (strcmp(b.with, "malloc") != 0) pool = quarry_stack_create(&(quarry_stack_options_t){.search = greedy ? QUARRY_STACK_GREEDY : QUARRY_STACK_BOUNDED});
        once(b.n);
        double seconds = pool_bench_cpu() - start;
        if (seconds < best) best = seconds;
        if (pool) quarry_pool_stats(pool, &s);
        quarry_pool_destroy(pool);
    }
    char more[160];
    snprintf(more, sizeof more, ",\"chunk_gets\":%" PRIu64 ",\"chunk_puts\":%" PRIu64 ",\"peak_held_bytes\":%zu", s.chunk_gets, s.chunk_puts, s.peak_held_bytes);
    pool_bench_line(&b, "", best, b.n * (SMALL + 1), b.n * (LARGE_BYTES + PAGE * b.n) + SMALL * SMALL_BYTES, more);
    return 0;
}
