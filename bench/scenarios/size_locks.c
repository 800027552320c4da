// SPDX-License-Identifier: MIT
// size_locks: one heap for many threads, and three ways to divide its lock: not at all, between threads, between sizes.
#include <quarry/pow2.h>

#include "scenario.h"

enum { MALLOC,
    ONE_LOCK,
    BY_THREAD,
    BY_SIZE,
    SLOTS = 256 };

static uint64_t with = BY_SIZE, threads = 1, count = 4000000, seed = 1;
static const option_t options[] = {
    CHOICE("with", &with, "malloc|one-lock|by-thread|by-size",
        "a pow2 pool with one lock, with eight that are divided between threads, and with one for each size of block"),
    NUMBER("threads", &threads, 1, SCENARIO_THREADS, "each with 256 blocks of its own"),
    NUMBER("count", &count, 1, (uint64_t)1 << 36, "blocks in all, of 8 to 1024 bytes"),
    OPTION_SEED(&seed),
    {0},
};

typedef struct slots {
    uint64_t *p[SLOTS];
    size_t size[SLOTS];
} slots_t;

static quarry_pool_t *pool;
static slots_t *all_slots;

static uint64_t drop(slots_t *s, uint64_t at) {
    uint64_t *const p = s->p[at];
    if (!p) return 0;
    const uint64_t found = *p;
    if (pool) quarry_pool_free(pool, p, s->size[at]);
    else free(p);
    s->p[at] = NULL;
    return found;
}

static void work(worker_t *w) {
    slots_t *const s = &all_slots[w->number];
    for (uint64_t i = 0; i < count / threads; i++) {
        const uint64_t r = bench_random(&w->random), at = (r >> 32) % SLOTS;
        w->check += drop(s, at);
        s->size[at] = bench_between((uint32_t)r, 8, 1024);
        s->p[at] = must_have(pool ? quarry_pool_alloc(pool, s->size[at], 8, 0) : malloc(s->size[at]));
        *s->p[at] = i;
    }
}

static void pool_values(void) {
    size_t orders[QUARRY_POW2_ORDERS];
    quarry_pow2_stats_t s;
    quarry_pow2_stats(pool, &s);
    uint64_t takes = 0, contended = 0;
    for (unsigned i = 0; i < s.partitions; i++) {
        quarry_pow2_partition_stats_t q;
        quarry_pow2_partition_stats(pool, i, &q);
        takes += q.takes;
        contended += q.contended;
    }
    scenario_value("locks_taken", (double)takes);
    scenario_value("contended", takes ? (double)contended / (double)takes : 0);
    scenario_value("region_bytes", (double)s.region_bytes);
    // Free memory between what is live: how many pieces it is in, and how large these are on average.
    const size_t pieces = quarry_pow2_fragments(pool, orders);
    scenario_value("free_fragments", (double)pieces);
    scenario_value("fragment_bytes", pieces ? (double)s.free_bytes / (double)pieces : 0);
}

int main(int argc, char **argv) {
    phase_t all = {.name = ""};
    uint64_t check = 0;
    scenario_begin(argc, argv, "size-locks",
        "Threads replace blocks of random sizes. An operation is a block made and ended.", options);
    const unsigned partitions = with == ONE_LOCK ? 1 : with == BY_THREAD ? 8
                                                                         : 0;
    if (with != MALLOC)
        pool = must_have(quarry_pow2_create(&(quarry_pow2_options_t){.partitions = partitions,
            .flags = with == BY_SIZE ? QUARRY_POW2_SIZE_LOCKS : 0,
            .region_bytes = 1 << 20}));
    all_slots = scenario_memory(threads * sizeof *all_slots);
    phase_begin(&all);
    const double seconds = workers_run((unsigned)threads, work, NULL, seed, &check);
    phase_end_timed(&all, seconds, count / threads * threads);
    if (pool) pool_values();
    for (uint64_t t = 0; t < threads; t++)
        for (uint64_t i = 0; i < SLOTS; i++) check += drop(&all_slots[t], i);
    scenario_print(&all, threads * SLOTS * 516, check);
    quarry_pool_destroy(pool);
    return scenario_end();
}
