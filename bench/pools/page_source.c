// SPDX-License-Identifier: MIT
// page_source: where a FIFO gets its pages: from the kernel (--with mmap) or from malloc (--with malloc: the documents' calloc), for
// pages of -z bytes. The three loops of the FIFO's designers (fifo.c), -n blocks each, of 8 to 512 bytes, -t of them live; one spare page, as
// there. -w 1, 2 or 3: one loop alone.
#include <quarry/fifo.h>

#include <stdbool.h>

#include "pool_bench.h"

static quarry_pool_t *pool;

static uint64_t *get(uint64_t *state) {
    const size_t size = bench_between((uint32_t)bench_random(state), 8, 512);
    char *p = quarry_fifo_alloc(pool, size, 8, 0);
    if (__builtin_expect(!p, 0)) bench_fail("out of memory");
    for (size_t i = 0; i < size; i += 64) p[i] = 1;
    return (uint64_t *)(void *)p;
}

static void loops(const pool_bench_t *b, uint64_t **places, int which) {
    uint64_t state = 1;
    for (uint64_t i = 0, at = 0; i < b->n; i++) {
        if (which == 1) {
            quarry_fifo_free(pool, get(&state), 8);
            continue;
        }
        if (which == 3) at = bench_between((uint32_t)(bench_random(&state) >> 32), 0, b->threads - 1);
        if (places[at]) quarry_fifo_free(pool, places[at], 8);
        places[at] = get(&state);
        if (++at == b->threads) at = 0;
    }
    for (unsigned i = 0; i < b->threads; i++) {
        if (places[i]) quarry_fifo_free(pool, places[i], 8);
        places[i] = NULL;
    }
}

int main(int argc, char **argv) {
    pool_bench_t b = {.scenario = "page_source", .with = "mmap", .n = 2000000, .size = 65536, .rounds = 3, .threads = 50000};
    pool_bench_options(&b, argc, argv);
    const bool from_malloc = !strcmp(b.with, "malloc");
    if (!from_malloc && strcmp(b.with, "mmap") != 0) bench_fail("--with mmap or malloc");
    uint64_t **places = (uint64_t **)calloc(b.threads, sizeof *places);
    if (!places || !b.threads || b.which < 0 || b.which > 3) bench_fail("out of memory, or -t 0, or -w above 3");
    double best = 1e9;
    quarry_pool_stats_t s = {0};
    pool_bench_phase(b.rounds);
    for (unsigned r = 0; r < b.rounds; r++) {
        const double start = pool_bench_cpu();
        pool = quarry_fifo_create(&(quarry_fifo_options_t){.pool.parent = from_malloc ? quarry_libc_pool() : NULL, .page_bytes = b.size, .spare_pages = 1});
        if (!pool) bench_fail("no pool");
        for (int which = 1; which <= 3; which++)
            if (!b.which || b.which == which) loops(&b, places, which);
        quarry_pool_stats(pool, &s);
        quarry_pool_destroy(pool);
        const double seconds = pool_bench_cpu() - start;
        if (seconds < best) best = seconds;
    }
    free(places);
    char more[96];
    snprintf(more, sizeof more, ",\"chunk_gets\":%" PRIu64 ",\"peak_held_bytes\":%zu", s.chunk_gets, s.peak_held_bytes);
    pool_bench_line(&b, "", best, b.n * (b.which ? 1 : 3), 0, more);
    return 0;
}
