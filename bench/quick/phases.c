// SPDX-License-Identifier: MIT
// phases: waves. Each wave fills 64 MiB with blocks of its own range of sizes, by malloc, calloc and
// aligned_alloc, then frees all but a random tenth, which stays through the next wave. What the next
// wave cannot reuse shows as memory; what calloc clears twice, as time.
#include "bench.h"

enum { WAVE_BYTES = 64 << 20 };
enum { MOST = 1 << 21 };

static const struct {
    size_t low;
    unsigned octaves;
} waves[] = {{32, 2}, {512, 3}, {64, 5}, {8192, 4}, {128, 1}, {2048, 8}};

static block_t block_calloc(size_t size) {
    const block_t b = {calloc(1, size), size};
    if (!b.ptr) bench_fail("out of memory");
    for (size_t i = 0; i < size; i += 512) {
        if (b.ptr[i]) bench_fail("calloc gave memory that is not zero");
    }
    if (b.ptr[size - 1]) bench_fail("calloc gave memory that is not zero at its end");
    block_fill(b);
    return b;
}

static block_t block_aligned(size_t size, size_t alignment) {
    const block_t b = {aligned_alloc(alignment, size), size};
    if (!b.ptr) bench_fail("out of memory");
    if ((uintptr_t)b.ptr % alignment) bench_fail("a block is not aligned");
    block_fill(b);
    return b;
}

typedef struct pile {
    block_t *blocks;
    size_t count;
} pile_t;

static void fill(bench_thread_t *t, pile_t *pile, unsigned wave) {
    for (size_t bytes = 0; bytes < WAVE_BYTES && pile->count < MOST;) {
        const uint64_t r = bench_random(&t->random), kind = bench_random(&t->random) % 16;
        const size_t size = bench_octaves(r, waves[wave].low, waves[wave].octaves);
        block_t b;
        if (kind < 4) b = block_calloc(size);
        else if (kind < 5) b = block_aligned(size, 64);
        else if (kind < 6 && size >= 1024) b = block_aligned(size, 4096);
        else b = block_new(size);
        pile->blocks[pile->count++] = b;
        bytes += size;
        t->check += size;
    }
}

static void thin(bench_thread_t *t, pile_t *pile, unsigned one_of) {
    size_t kept = 0;
    for (size_t i = 0; i < pile->count; i++) {
        if (bench_random(&t->random) % one_of) block_free(pile->blocks[i]);
        else pile->blocks[kept++] = pile->blocks[i];
    }
    pile->count = kept;
}

static void *body(void *arg) {
    bench_thread_t *t = arg;
    pile_t now = {calloc(MOST, sizeof(block_t)), 0}, before = {calloc(MOST, sizeof(block_t)), 0};
    if (!now.blocks || !before.blocks) bench_fail("out of memory");
    for (uint64_t i = 0; i < t->ops; i++) {
        fill(t, &now, (unsigned)(i % (sizeof waves / sizeof waves[0])));
        thin(t, &now, 10);
        for (size_t k = 0; k < before.count; k++) block_free(before.blocks[k]);
        before.count = 0;
        const pile_t rest = now;
        now = before;
        before = rest;
    }
    for (size_t k = 0; k < before.count; k++) block_free(before.blocks[k]);
    free(now.blocks);
    free(before.blocks);
    return NULL;
}

int main(int argc, char **argv) {
    const bench_t b = bench_begin(argc, argv, "phases", 1, 18);
    return bench_end(&b, bench_threads(&b, body, NULL, b.ops, 0));
}
