// SPDX-License-Identifier: MIT
// fifo: the three loops of the FIFO's designers, and a fourth: a queue that is overtaken.
#include <quarry/fifo.h>

#include "../common/queue.h"
#include "scenario.h"

enum { MALLOC,
    FIFO,
    FIFO_CALL,  // through the table of operations, as p_new does
    NOTHING };
enum { ONE,
    IN_ORDER,
    RANDOM,
    OVERTAKEN };
enum { WITHIN = 16 };  // places

static uint64_t with = FIFO, mode = ONE, count = 20000000, size = 64, live = 10000, seed = 1;
static const option_t options[] = {
    CHOICE("with", &with, "malloc|fifo|fifo-call|nothing",
        "the allocator; fifo-call: by function pointer; nothing: all blocks are one buffer"),
    CHOICE("mode", &mode, "one|in-order|random|overtaken",
        "one block at a time; or many, which end in order, at random, or overtaken: less than 16 places off the order"),
    NUMBER("count", &count, 1, (uint64_t)1 << 40, "blocks in all"),
    BYTES("size", &size, 8, 8192, "bytes of a block, of which 8 are written and read"),
    NUMBER("live", &live, 1, 1 << 26, "blocks in the array"),
    OPTION_SEED(&seed),
    {0},
};

static quarry_pool_t *pool;

ALWAYS_INLINE void *get(uint64_t kind) {
    static uint64_t buffer[1024];
    switch (kind) {
    case MALLOC: return malloc(size);
    case FIFO: return quarry_fifo_alloc(pool, size, 8, 0);
    case FIFO_CALL: return quarry_pool_alloc(pool, size, 8, 0);
    default: return buffer;
    }
}

ALWAYS_INLINE void put(uint64_t kind, void *p) {
    switch (kind) {
    case MALLOC: free(p); break;
    case FIFO: quarry_fifo_free(pool, p, size); break;
    case FIFO_CALL: quarry_pool_free(pool, p, size); break;
    default: break;
    }
}

ALWAYS_INLINE void make(uint64_t kind, uint64_t **place, uint64_t i) {
    uint64_t *const p = *place = must_have(get(kind));
    *(volatile uint64_t *)p = i;
}

// Returns what was in the place.
ALWAYS_INLINE uint64_t end(uint64_t kind, uint64_t **place) {
    uint64_t *const p = *place;
    if (!p) return 0;
    const uint64_t found = *(volatile uint64_t *)p;
    put(kind, p);
    *place = NULL;
    return found;
}

ALWAYS_INLINE uint64_t replace(uint64_t kind, uint64_t **place, uint64_t i) {
    const uint64_t found = end(kind, place);
    make(kind, place, i);
    return found;
}

// A random place.
ALWAYS_INLINE uint64_t place_of(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return ((*state >> 32) * live) >> 32;
}

// Of a queue that is overtaken. The block i lies in place i of a circle. The block that had the place has ended, since
// there are WITHIN places more than blocks.
static uint64_t circle(void) { return live + WITHIN; }
static queue_t overtaken(void) {
    return (queue_t){.within = (unsigned)(live < WITHIN ? live : WITHIN), .random = seed};
}

ALWAYS_INLINE uint64_t loop(uint64_t kind, uint64_t **places) {
    uint64_t check = 0, state = seed;
    if (mode == ONE) {
        for (uint64_t i = 0; i < count; i++) {
            volatile uint64_t *const p = must_have(get(kind));
            *p = i;
            check += *p;
            put(kind, (void *)(uintptr_t)p);
        }
    } else if (mode == IN_ORDER) {
        for (uint64_t i = 0, at = 0; i < count; i++) {
            check += replace(kind, &places[at], i);
            if (++at == live) at = 0;
        }
    } else if (mode == RANDOM) {
        for (uint64_t i = 0; i < count; i++) check += replace(kind, &places[place_of(&state)], i);
    } else {
        queue_t queue = overtaken();
        const uint64_t all = circle();
        for (uint64_t i = 0, at = 0; i < count; i++) {
            if (i >= live) check += end(kind, &places[queue_next(&queue) % all]);
            make(kind, &places[at], i);
            if (++at == all) at = 0;
        }
    }
    return check;
}

// What the loop must find, from an array of numbers.
static uint64_t expected(uint64_t *numbers) {
    uint64_t check = 0, state = seed;
    queue_t queue = overtaken();
    for (uint64_t i = 0; i < count; i++) {
        if (mode == OVERTAKEN) {
            if (i >= live) check += numbers[queue_next(&queue) % circle()];
            numbers[i % circle()] = i;
            continue;
        }
        const uint64_t at = mode == ONE ? 0 : mode == IN_ORDER ? i % live
                                                               : place_of(&state);
        check += mode == ONE ? i : numbers[at];
        numbers[at] = i;
    }
    return check;
}

int main(int argc, char **argv) {
    phase_t all = {.name = ""};
    scenario_begin(argc, argv, "fifo",
        "Blocks are made, and end in the order that --mode says. An operation is a block made and ended.", options);
    pool = must_have(quarry_fifo_create(NULL));
    uint64_t **const places = scenario_memory(circle() * sizeof *places), payload = 0;
    uint64_t *const numbers = scenario_memory(circle() * sizeof *numbers);
    phase_begin(&all);
    const uint64_t check = with == MALLOC ? loop(MALLOC, places) : with == FIFO    ? loop(FIFO, places)
                                                               : with == FIFO_CALL ? loop(FIFO_CALL, places)
                                                                                   : loop(NOTHING, places);
    phase_end(&all, count);
    const uint64_t right = expected(numbers);
    if (with != NOTHING && check != right) bench_fail("blocks have changed");
    for (uint64_t i = 0; i < circle(); i++) {
        if (!places[i]) continue;
        if (with != NOTHING && *places[i] != numbers[i]) bench_fail("a block has changed");
        payload += size;
        put(with, places[i]);
    }
    scenario_print(&all, mode == ONE ? size : payload, right);
    quarry_pool_destroy(pool);
    return scenario_end();
}
