// SPDX-License-Identifier: MIT
// pages.c: where zeroed pages come from: the pool of pages, calloc, or mmap for each.
//
//   -w 0  turnover: -n runs of -z bytes, one at a time: taken zeroed, one word per page written, freed
//   -w 1  growing: -n runs of -z bytes are taken zeroed and kept, then all are freed
//   --with pages | malloc | mmap
#include <sys/mman.h>
#include <unistd.h>

#include "pool_bench.h"
#include "quarry/pages.h"

static quarry_pool_t *pool;
static int mapped;
static size_t page;

static char *take(size_t bytes) {
    char *p;
    if (pool) p = (char *)quarry_pool_alloc(pool, bytes, 1, QUARRY_POOL_ZERO);
    else if (!mapped) p = (char *)calloc(1, bytes);
    else p = (char *)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!p || p == MAP_FAILED) bench_fail("out of memory");
    return p;
}

static void give(char *p, size_t bytes) {
    if (pool) quarry_pool_free(pool, p, bytes);
    else if (!mapped) free(p);
    else munmap(p, bytes);
}

// A word of each page must be zero; then it is not.
static uint64_t touch(char *p, size_t bytes) {
    uint64_t found = 0;
    for (size_t i = 0; i < bytes; i += page) {
        found |= *(volatile uint64_t *)(void *)(p + i);
        *(volatile uint64_t *)(void *)(p + i) = i + 1;
    }
    return found;
}

int main(int argc, char **argv) {
    pool_bench_t b = {.scenario = "pages", .with = "pages", .n = 100000, .size = 65536, .rounds = 1};
    pool_bench_options(&b, argc, argv);
    page = (size_t)sysconf(_SC_PAGESIZE);
    mapped = !strcmp(b.with, "mmap");
    if (!mapped && strcmp(b.with, "malloc")) pool = quarry_pages_create(NULL);
    if (!b.n || b.size < 8 || (!pool && !mapped && strcmp(b.with, "malloc"))) bench_fail("options");
    char **kept = b.which ? (char **)malloc(b.n * sizeof *kept) : NULL;
    uint64_t dirty = 0;
    pool_bench_phase(1);
    double start = bench_now();
    for (uint64_t i = 0; i < b.n; i++) {
        char *p = take(b.size);
        dirty |= touch(p, b.size);
        if (kept) kept[i] = p;
        else give(p, b.size);
    }
    for (uint64_t i = 0; kept && i < b.n; i++) give(kept[i], b.size);
    double seconds = bench_now() - start;
    if (dirty) bench_fail("memory was not zero");
    pool_bench_line(&b, b.which ? "growing" : "turnover", seconds, b.n, b.size * (b.which ? b.n : 1), "");
    free(kept);
    quarry_pool_destroy(pool);
    return 0;
}
