// SPDX-License-Identifier: MIT
// slots: the comparison of the first power-of-two allocator: 64 slots, in which blocks of random sizes come, change and
// go, by one thread or by many, each with slots of its own.
#include <quarry/pow2.h>

#include "scenario.h"

enum { MALLOC,
    POW2_1,
    POW2_8,
    SLOTS = 64 };

static uint64_t with = POW2_8, threads = 1, count = 24000, rounds = 20, range, stride = 4096, seed = 1;
static const option_t options[] = {
    CHOICE("with", &with, "malloc|pow2-1|pow2-8", "a pow2 pool with one partition, with eight"),
    NUMBER("threads", &threads, 1, SCENARIO_THREADS, "each with its own slots"),
    NUMBER("count", &count, 1, (uint64_t)1 << 36,
        "commands of a thread in a round: on an empty slot an allocation, on a full one half of the time each a change "
        "of size and a free"),
    NUMBER("rounds", &rounds, 1, 1000000, "the same commands again"),
    CHOICE("range", &range, "small|large", "sizes from 46 to 102,400 bytes; from 274 to 16 MiB"),
    BYTES("stride", &stride, 0, 1 << 24, "one byte in so many is written; 0: the first and the last"),
    OPTION_SEED(&seed),
    {0},
};

typedef struct slot {
    char *p;
    size_t size;
} slot_t;

static quarry_pool_t *pool;

static void touch(const slot_t *s) {
    for (size_t i = 0; stride && i < s->size; i += stride) s->p[i] = 1;
    s->p[0] = s->p[s->size - 1] = (char)s->size;
}

static void drop(slot_t *s) {
    if (!s->p) return;
    if (s->p[0] != (char)s->size || s->p[s->size - 1] != (char)s->size) bench_fail("a block has changed");
    if (pool) quarry_pool_free(pool, s->p, s->size);
    else free(s->p);
    *s = (slot_t){NULL, 0};
}

// Returns the most bytes that were live.
static size_t one_round(worker_t *w) {
    slot_t slots[SLOTS] = {{NULL, 0}};
    size_t live = 0, peak = 0;
    uint64_t random = w->random;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t r = bench_random(&random);
        const size_t size = range ? bench_between((uint32_t)r, 274, 16 << 20) : bench_between((uint32_t)r, 46, 102400);
        slot_t *const s = &slots[(r >> 32) % SLOTS];
        live -= s->size;
        if (s->p && r >> 63) {
            drop(s);
            continue;
        }
        s->p = must_have(pool ? quarry_pool_resize(pool, s->p, s->size, size, 16, 0) : realloc(s->p, size));
        s->size = size;
        touch(s);
        live += size;
        if (live > peak) peak = live;
    }
    for (int i = 0; i < SLOTS; i++) drop(&slots[i]);
    return peak;
}

static void work(worker_t *w) {
    for (uint64_t r = 0; r < rounds; r++) w->check = one_round(w);
}

static void pool_values(void) {
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
    scenario_value("locks_contended", (double)contended);
    scenario_value("waste", s.rounded_bytes ? 1 - (double)s.requested_bytes / (double)s.rounded_bytes : 0);
    scenario_value("region_bytes", (double)s.region_bytes);
    scenario_value("joined", (double)s.resized_by_join);
}

int main(int argc, char **argv) {
    phase_t all = {.name = ""};
    uint64_t peak = 0;
    scenario_begin(argc, argv, "slots", "Blocks come, change and go in 64 slots. An operation is a command.", options);
    if (with != MALLOC)
        pool = must_have(quarry_pow2_create(&(quarry_pow2_options_t){.partitions = with == POW2_1 ? 1 : 8}));
    phase_begin(&all);
    const double seconds = workers_run((unsigned)threads, work, NULL, seed, &peak);
    phase_end_timed(&all, seconds, count * rounds * threads);
    if (pool) pool_values();
    scenario_print(&all, threads == 1 ? peak : 0, peak);  // threads have their peaks at different times
    quarry_pool_destroy(pool);
    return scenario_end();
}
