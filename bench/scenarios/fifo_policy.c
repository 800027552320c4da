// SPDX-License-Identifier: MIT
// fifo_policy: what the policy of pages of the FIFO is worth: the same three loops on a FIFO with the designers' first
// policy, on ours with one spare page, which was their second, and on ours as it is.
#include <quarry/fifo.h>
#include <stddef.h>

#include "../common/queue.h"
#include "old_fifo.h"

enum { OLD,
    ONE_SPARE,
    FIFO };
enum { ONE,
    IN_ORDER,
    OVERTAKEN,
    RANDOM };
enum { PAGE = 64 << 10,
    OVERTAKES = 16 };

static uint64_t with = FIFO, mode = IN_ORDER, count = 8000000, size = 64, live = 10000, seed = 1;
static const option_t options[] = {
    CHOICE("with", &with, "old|one-spare|fifo",
        "the first policy; a full page that is empty is used again, and one page is spare; and spare pages by the "
        "pages in use"),
    CHOICE("mode", &mode, "one|in-order|overtaken|random",
        "one block at a time; or blocks that end in order, each less than 16 places off the order, or at random"),
    NUMBER("count", &count, 1, (uint64_t)1 << 40, "blocks in all"),
    BYTES("size", &size, 8, 8192, "bytes of a block, of which 8 are written and read"),
    NUMBER("live", &live, OVERTAKES, 1 << 26, "blocks that are live, but with --mode one"),
    OPTION_SEED(&seed),
    {0},
};

static quarry_pool_t *pool;
static old_fifo_t old = {.page_bytes = PAGE};

ALWAYS_INLINE uint64_t *get(uint64_t kind, uint64_t i) {
    uint64_t *const p = must_have(kind == OLD ? old_fifo_alloc(&old, size) : quarry_fifo_alloc(pool, size, 8, 0));
    *(volatile uint64_t *)p = i;
    return p;
}
ALWAYS_INLINE uint64_t put(uint64_t kind, uint64_t *p) {
    const uint64_t found = *(volatile uint64_t *)p;
    if (kind == OLD) old_fifo_free(&old, p);
    else quarry_fifo_free(pool, p, size);
    return found;
}

static uint64_t circle(void) { return live + OVERTAKES; }

// The block i lies in place i of a circle, which has room for those that the oldest one holds up.
ALWAYS_INLINE uint64_t overtaken(uint64_t kind, uint64_t **places) {
    queue_t queue = {.within = OVERTAKES, .random = seed};
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t **const ends = i < live ? NULL : &places[queue_next(&queue) % circle()];
        if (ends) sum += put(kind, *ends), *ends = NULL;
        places[i % circle()] = get(kind, i);
    }
    for (uint64_t i = 0; i < circle(); i++)
        if (places[i]) sum += put(kind, places[i]);
    return sum;
}

ALWAYS_INLINE uint64_t loop(uint64_t kind, uint64_t **places) {
    uint64_t sum = 0, state = seed;
    const uint64_t reach = mode == RANDOM ? live : 1;
    if (mode == OVERTAKEN) return overtaken(kind, places);
    if (mode == ONE) {
        for (uint64_t i = 0; i < count; i++) sum += put(kind, get(kind, i));
        return sum;
    }
    for (uint64_t i = 0, at = 0; i < count; i++, at = at + 1 < live ? at + 1 : 0) {
        if (i >= live) {
            uint64_t next = at + (reach > 1 ? bench_random(&state) % reach : 0);
            next -= next >= live ? live : 0;
            sum += put(kind, places[next]);
            places[next] = places[at];
        }
        places[at] = get(kind, i);
    }
    for (uint64_t i = 0; i < live && i < count; i++) sum += put(kind, places[i]);
    return sum;
}

int main(int argc, char **argv) {
    phase_t all = {.name = ""};
    quarry_pool_stats_t before, after;
    scenario_begin(argc, argv, "fifo-policy",
        "Blocks are made, and end in the order that --mode says. An operation is a block made and ended.", options);
    const quarry_fifo_options_t options_of_fifo = {.page_bytes = PAGE, .spare_pages = with == ONE_SPARE};
    pool = must_have(quarry_fifo_create(&options_of_fifo));
    uint64_t **const places = scenario_memory(circle() * sizeof *places);
    quarry_pool_stats(pool, &before);
    phase_begin(&all);
    const uint64_t sum = with == OLD ? loop(OLD, places) : loop(FIFO, places);
    phase_end(&all, count);
    quarry_pool_stats(pool, &after);
    if (sum != count * (count - 1) / 2) bench_fail("a block has changed");
    const double slow = with == OLD ? (double)old.slow_calls : (double)(after.slow_calls - before.slow_calls);
    const double taken = with == OLD ? (double)old.pages_taken : (double)(after.chunk_gets - before.chunk_gets);
    scenario_value("slow_share", slow / (double)count);
    scenario_value("pages_taken", taken);
    scenario_print(&all, (mode == ONE ? 1 : live) * size, sum);
    old_fifo_end(&old);
    quarry_pool_destroy(pool);
    return scenario_end();
}
