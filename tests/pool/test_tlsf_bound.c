// SPDX-License-Identifier: MIT
// test_tlsf_bound.c: the longest call of a tlsf pool is as long in a heap of 1 GiB as in one of 1 MiB.
//
// The pool's sources are compiled into this program a second time, with a call at the start of every basic block
// (-fsanitize-coverage=trace-pc), so the blocks that a single call runs through are counted exactly. loops.py shows
// that none of them runs twice in a call. What is not counted is the copying of contents: memcpy and memset.
//
//   test_tlsf_bound [calls]      in the large heap; default 10^6
#include <sys/mman.h>

#include "harness.h"
#include "quarry/tlsf.h"

// ---- counting --------------------------------------------------------------------------------------------------

static unsigned blocks;
void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void) { blocks++; }

enum { ALLOC,
    ALIGNED,
    RESIZE,
    FREE,
    KINDS };
static const char *const kinds[KINDS] = {"alloc", "aligned alloc", "resize", "free"};

typedef struct longest {
    unsigned most[KINDS];
    uint64_t calls[KINDS], sum[KINDS], refused;
} longest_t;

static void count(longest_t *l, int kind) {
    unsigned n = blocks;
    l->calls[kind]++;
    l->sum[kind] += n;
    if (n > l->most[kind]) l->most[kind] = n;
}

// ---- random calls ------------------------------------------------------------------------------------------------

#define SLOTS_PER_MIB 2400  // more than fit: the pool runs full, so refusals are among the calls

static size_t random_size(uint64_t *random) { return test_random(random) % ((size_t)32 << test_random(random) % 9); }

static void one_call(quarry_pool_t *pool, void **slot, uint64_t *random, longest_t *l) {
    size_t size = random_size(random);
    unsigned kind = test_random(random) % 8;
    blocks = 0;
    if (!*slot) {
        size_t alignment = kind == 0 ? (size_t)32 << test_random(random) % 8 : 16;
        blocks = 0;
        *slot = quarry_pool_alloc(pool, size, alignment, 0);
        count(l, kind == 0 ? ALIGNED : ALLOC);
        l->refused += !*slot;
    } else if (kind < 2) {
        void *p = quarry_pool_resize(pool, *slot, QUARRY_SIZE_UNKNOWN, size, 16, 0);
        count(l, RESIZE);
        if (p) *slot = p;
        l->refused += !p;
    } else {
        quarry_pool_free(pool, *slot, QUARRY_SIZE_UNKNOWN);
        count(l, FREE);
        *slot = NULL;
    }
}

static longest_t run(size_t bytes, uint64_t calls) {
    size_t slots = bytes / 1048576 * SLOTS_PER_MIB;
    void *heap = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void **slot =
        mmap(NULL, slots * sizeof *slot, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(heap != MAP_FAILED && slot != MAP_FAILED);
    quarry_pool_t *pool =
        quarry_tlsf_create(&(quarry_tlsf_options_t){.buffer = heap, .buffer_bytes = bytes, .flags = QUARRY_TLSF_FIXED});
    CHECK(pool);
    uint64_t random = test_seed;
    longest_t l = {0}, warm = {0};
    // Until the heap has been full once.
    for (uint64_t i = 0; i < slots * 8 && warm.refused < slots / 100; i++)
        one_call(pool, &slot[test_random(&random) % slots], &random, &warm);
    CHECK_GT(warm.refused, 0);
    for (uint64_t i = 0; i < calls; i++) one_call(pool, &slot[test_random(&random) % slots], &random, &l);
    CHECK_EQ(quarry_pool_check(pool), 0);
    quarry_pool_stats_t stats;
    quarry_pool_stats(pool, &stats);
    printf("heap of %4zu MiB, %2.0f %% used, %llu calls, %llu refused; basic blocks per call:\n", bytes >> 20,
        100.0 * (double)stats.used_bytes / (double)bytes, (unsigned long long)calls, (unsigned long long)l.refused);
    for (int k = 0; k < KINDS; k++)
        printf("  %-14s at most %3u, mean %5.1f, of %llu calls\n", kinds[k], l.most[k],
            (double)l.sum[k] / (double)l.calls[k], (unsigned long long)l.calls[k]);
    quarry_pool_destroy(pool);
    munmap(heap, bytes);
    munmap(slot, slots * sizeof *slot);
    return l;
}

static uint64_t calls = 1000000;

TEST(no_call_is_longer_in_a_larger_heap) {
    // The rarest paths meet a few calls in a million. The small heap gets more calls, but may miss one all the same;
    // what grows with the heap, if only with its logarithm, would grow by more than an eighth.
    longest_t small = run((size_t)1 << 20, 3 * calls), large = run((size_t)1 << 30, calls);
    for (int k = 0; k < KINDS; k++) {
        CHECK_GT(small.most[k], 5);  // the counter counts
        CHECK_LE(large.most[k], small.most[k] + small.most[k] / 8);
    }
}

int main(int argc, char **argv) {
    if (argc > 1) calls = strtoull(argv[1], NULL, 0);
    char *none[] = {argv[0], NULL};
    return test_main(1, none);
}
