// SPDX-License-Identifier: MIT
// page-source: where a FIFO gets its pages: from the kernel, or from malloc (the articles' calloc), by the size of a
// page. The three loops of the FIFO's designers (fifo.c), with blocks of 8 to 512 bytes; one spare page, as there.
#include <quarry/fifo.h>

#include "scenario.h"

enum { MMAP,
    MALLOC };
enum { ALL,
    ONE,
    IN_ORDER,
    RANDOM };

static uint64_t with = MMAP, mode = ALL, count = 2000000, page = 65536, live = 50000, rounds = 3, seed = 1;
static const option_t options[] = {
    CHOICE("with", &with, "mmap|malloc", "where pages come from"),
    CHOICE("mode", &mode, "all|one|in-order|random",
        "which loops: one block at a time; an array of blocks replaced in order; at random"),
    NUMBER("count", &count, 1, (uint64_t)1 << 40, "blocks of each loop"),
    BYTES("page", &page, 65536, (uint64_t)1 << 30, "of a page, a power of two"),
    NUMBER("live", &live, 1, 1 << 26, "blocks in the array"),
    NUMBER("rounds", &rounds, 1, 1000000, "how often, each time with a new pool"),
    OPTION_SEED(&seed),
    {0},
};

static quarry_pool_t *pool;
static uint64_t check;

static uint64_t *get(uint64_t *state) {
    const size_t size = bench_between((uint32_t)bench_random(state), 8, 512);
    char *const p = must_have(quarry_fifo_alloc(pool, size, 8, 0));
    for (size_t i = 0; i < size; i += 64) p[i] = 1;
    check += size;
    return (uint64_t *)(void *)p;
}

static void put(uint64_t *p) {
    if (*(char *)p != 1) bench_fail("a block has changed");
    quarry_fifo_free(pool, p, 8);
}

static void loop(uint64_t which, uint64_t **places) {
    uint64_t state = seed;
    for (uint64_t i = 0, at = 0; i < count; i++) {
        if (which == ONE) {
            put(get(&state));
            continue;
        }
        if (which == RANDOM) at = bench_between((uint32_t)(bench_random(&state) >> 32), 0, live - 1);
        if (places[at]) put(places[at]);
        places[at] = get(&state);
        if (++at == live) at = 0;
    }
    for (uint64_t i = 0; i < live; i++) {
        if (places[i]) put(places[i]);
        places[i] = NULL;
    }
}

int main(int argc, char **argv) {
    phase_t all = {.name = ""};
    quarry_pool_stats_t s = {0};
    scenario_begin(argc, argv, "page-source",
        "A FIFO whose pages come from the kernel or from malloc. An operation is a block made and ended.", options);
    uint64_t **const places = scenario_memory(live * sizeof *places);
    for (uint64_t r = 0; r < rounds; r++) {
        uint64_t loops = 0;
        phase_begin(&all);
        pool = must_have(quarry_fifo_create(&(quarry_fifo_options_t){
            .pool.parent = with == MALLOC ? quarry_libc_pool() : NULL, .page_bytes = page, .spare_pages = 1}));
        for (uint64_t which = ONE; which <= RANDOM; which++)
            if (mode == ALL || mode == which) loop(which, places), loops++;
        quarry_pool_stats(pool, &s);
        quarry_pool_destroy(pool);
        phase_end(&all, count * loops);
    }
    scenario_value("pages_taken", (double)s.chunk_gets);
    scenario_value("peak_held_bytes", (double)s.peak_held_bytes);
    scenario_print(&all, 0, check);
    return scenario_end();
}
