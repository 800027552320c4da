// SPDX-License-Identifier: MIT
// worst-case: regular small blocks, and an oversized one now and then: what a search for chunks costs if it gives back
// all that it passes.
#include <quarry/pages.h>
#include <quarry/stack.h>

#include <math.h>
#include <unistd.h>

#include "greedy.h"
#include "scenario.h"

enum { STACK,
    GREEDY,
    MALLOC };
enum { LISTED,
    NESTED };
enum { SMALL = 20000,
    SMALL_BYTES = 100,
    LARGE_BYTES = 80000,
    DEPTH_MAX = 100 };

static uint64_t with = STACK, mode = LISTED, depth = 20, rounds = 5, every = 1000;
static const option_t options[] = {
    CHOICE("with", &with, "stack|greedy|malloc",
        "a stack with the bounded search; one that gives back every chunk too small for a request; blocks freed one by "
        "one"),
    CHOICE("mode", &mode, "listed|nested",
        "as the articles list it: each frame ends before the next begins; or all stay open, within each other"),
    NUMBER("depth", &depth, 1, DEPTH_MAX,
        "frames, each with 20,000 blocks of 100 bytes that end before it gets a large one"),
    NUMBER("rounds", &rounds, 1, 1000000, "how often; one more, which is not timed, draws the curve"),
    NUMBER("every", &every, 1, 1 << 30, "blocks from one point of the curve to the next"),
    {0},
};

static quarry_pool_t *pool, *pages;
static greedy_t greedy;
static size_t page, used;
static uint64_t blocks;
static long base_kib;

// ---- the curve: what the program uses, what is held for it, and what was taken in all -----------------------------

static void point(void) {
    if (with == MALLOC) {
        scenario_row((double)blocks, (double)used, (double)(scenario_rss_kib() - base_kib) * 1024, (double)NAN);
        return;
    }
    quarry_pool_stats_t s, p;
    if (pool) quarry_pool_stats(pool, &s);
    quarry_pool_stats(pages, &p);
    scenario_row((double)blocks, (double)used, (double)(pool ? s.held_bytes : greedy.held), (double)p.requested_bytes);
}

// ---- a stack of ours, the greedy one, or malloc ---------------------------------------------------------------------

typedef union frame {
    quarry_stack_frame_t ours;
    greedy_frame_t greedy;
} frame_t;

static void push(frame_t *frame) {
    if (pool) quarry_stack_push(pool, &frame->ours);
    else if (with == GREEDY) frame->greedy = greedy.top;
}

static void pop(frame_t *frame) {
    if (pool) quarry_stack_pop(pool, &frame->ours);
    else if (with == GREEDY) greedy.top = frame->greedy;
}

static void create(quarry_pool_t *parent) {
    if (with == STACK) pool = must_have(quarry_stack_create(&(quarry_stack_options_t){.pool.parent = parent}));
    if (with == GREEDY) greedy_create(&greedy, parent, page);
}

static void destroy(void) {
    quarry_pool_destroy(pool);
    if (with == GREEDY) greedy_destroy(&greedy);
}

static char *get(size_t size, bool traced) {
    char *const p = must_have(pool ? quarry_stack_alloc(pool, size, 1, 0) : with == GREEDY ? greedy_alloc(&greedy, size)
                                                                                           : malloc(size));
    p[0] = p[size - 1] = 1;
    if (!traced) return p;
    used += size;
    if (++blocks % every == 0 || size > SMALL_BYTES) point();
    return p;
}

// ---- the articles' program, worst_case, and the same with its frames within each other ----------------------------

static void small_blocks(bool traced) {
    static char *small[SMALL];
    frame_t inner;
    push(&inner);
    for (int k = 0; k < SMALL; k++) small[k] = get(SMALL_BYTES, traced);
    for (int k = SMALL; k-- && with == MALLOC;) free(small[k]);
    pop(&inner);
    if (traced) used -= SMALL * SMALL_BYTES, point();
}

typedef struct turn {
    frame_t frame;
    char *large;
} turn_t;

static size_t large_bytes(void) { return LARGE_BYTES + page * depth; }

static void begin_turn(turn_t *t, uint64_t number, bool traced) {
    push(&t->frame);
    small_blocks(traced);
    t->large = get(large_bytes(), traced);
    t->large[1] = (char)number;
}

static uint64_t end_turn(turn_t *t, uint64_t number, bool traced) {
    const char found = t->large[1];
    if (found != (char)number) bench_fail("a block has changed");
    if (with == MALLOC) free(t->large);
    pop(&t->frame);
    if (traced) used -= large_bytes(), point();
    return (uint64_t)found;
}

static uint64_t once(bool traced) {
    turn_t turns[DEPTH_MAX];
    uint64_t check = 0;
    for (uint64_t i = 0; i < depth; i++) {
        begin_turn(&turns[i], i, traced);
        if (mode == LISTED) check = check * 31 + end_turn(&turns[i], i, traced);
    }
    for (uint64_t i = depth; mode == NESTED && i--;) check = check * 31 + end_turn(&turns[i], i, traced);
    return check;
}

// At the highest moment: behind the small blocks of the last turn, or behind its large one.
static uint64_t payload(void) {
    const uint64_t open = mode == NESTED ? (depth - 1) * large_bytes() : 0, small = (uint64_t)SMALL * SMALL_BYTES;
    return open + (small > large_bytes() ? small : large_bytes());
}

int main(int argc, char **argv) {
    phase_t all = {.name = ""};
    uint64_t check = 0;
    quarry_pool_stats_t s = {0}, p = {0};
    scenario_begin(argc, argv, "worst-case",
        "The articles' worst_case for a stack's search. An operation is a block. The series is of the first "
        "round:\nbytes in use, bytes held, bytes taken from the kernel so far.",
        options);
    page = (size_t)sysconf(_SC_PAGESIZE);
    pages = must_have(quarry_pages_create(NULL));
    base_kib = scenario_rss_kib();
    scenario_columns("block", "used_bytes", "held_bytes", "taken_bytes", NULL);
    create(pages);
    check = once(true);
    if (pool) quarry_pool_stats(pool, &s);
    quarry_pool_stats(pages, &p);
    destroy();
    quarry_pool_destroy(pages);
    for (uint64_t r = 0; r < rounds; r++) {
        phase_begin(&all);
        create(NULL);
        check ^= once(false) * (r + 2);
        destroy();
        phase_end(&all, depth * (SMALL + 1));
    }
    if (with != MALLOC) {
        scenario_value("taken_bytes", (double)p.requested_bytes);
        scenario_value("peak_held_bytes", (double)(pool ? s.peak_held_bytes : greedy.peak));
        scenario_value("chunks_taken", (double)(pool ? s.chunk_gets : greedy.gets));
    }
    scenario_print(&all, payload(), check);
    return scenario_end();
}
