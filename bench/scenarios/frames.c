// SPDX-License-Identifier: MIT
// frames: what it costs to open and end frames, and what the three ways cost in which a stack finds room: the chunk at
// hand, one that it kept, a new one.
#include <quarry/scope.h>

#include "scenario.h"

enum { STACK,
    SCOPE,
    MALLOC };
enum { EMPTY,
    NESTED,
    BLOCKS,
    KEPT,
    NEW };
enum { DEPTH = 32,
    LARGE = 48 * 1024 };

static uint64_t with = STACK, mode = EMPTY, count = 20000000, size = 48, blocks = 4;
static const option_t options[] = {
    CHOICE("with", &with, "stack|scope|malloc", "frames of a stack pool; t_scope; malloc and free, with --mode blocks"),
    CHOICE("mode", &mode, "empty|nested|blocks|kept|new",
        "a frame with nothing in it; 32 within each other; one with --blocks; one whose block lies in a chunk that was "
        "kept, or that is taken from the kernel and given back each time"),
    NUMBER(
        "count", &count, 1, (uint64_t)1 << 40, "frames; with --mode kept a hundredth, with new a thousandth of them"),
    BYTES("size", &size, 8, 4096, "bytes of a block, of which the first and the last are written"),
    NUMBER("blocks", &blocks, 1, 64, "blocks of a frame"),
    {0},
};

static quarry_pool_t *pool;

static inline void use(char *p, size_t bytes) {
    if (__builtin_expect(!p, 0)) bench_fail("out of memory");
    p[0] = p[bytes - 1] = 1;
    __asm__ volatile("" ::"r"(p)
                     : "memory");
}

// What the frame is for; without it a compiler sees that nothing is done.
static inline void body(void) {
    __asm__ volatile("" ::
                         : "memory");
}

static __attribute__((noinline)) void empty_stack(void) {
    quarry_stack_frame_t f;
    quarry_stack_push(pool, &f);
    body();
    quarry_stack_pop(pool, &f);
}
static __attribute__((noinline)) void empty_scope(void) {
    t_scope;
    body();
}

static __attribute__((noinline)) void nested_stack(unsigned depth) {
    quarry_stack_frame_t f;
    quarry_stack_push(pool, &f);
    if (depth > 1) nested_stack(depth - 1);
    body();
    quarry_stack_pop(pool, &f);
}
static __attribute__((noinline)) void nested_scope(unsigned depth) {
    t_scope;
    if (depth > 1) nested_scope(depth - 1);
    body();
}

static __attribute__((noinline)) void blocks_stack(void) {
    quarry_stack_frame_t f;
    quarry_stack_push(pool, &f);
    for (uint64_t i = 0; i < blocks; i++) use(quarry_stack_alloc(pool, size, 8, 0), size);
    quarry_stack_pop(pool, &f);
}
static __attribute__((noinline)) void blocks_scope(void) {
    t_scope;
    for (uint64_t i = 0; i < blocks; i++) use(quarry_stack_bump(&quarry_thread_stack, size, 8, 0), size);
}
static __attribute__((noinline)) void blocks_malloc(void) {
    char *p[64];
    for (uint64_t i = 0; i < blocks; i++) use(p[i] = malloc(size), size);
    for (uint64_t i = blocks; i--;) free(p[i]);
}

// The first half of the chunk at hand is in use, so the block lies in another one.
static uint64_t spill(uint64_t frames, bool keep) {
    quarry_stack_frame_t f;
    use(quarry_stack_alloc(pool, LARGE, 8, 0), LARGE);
    for (uint64_t i = 0; i < frames; i++) {
        quarry_stack_push(pool, &f);
        use(quarry_stack_alloc(pool, LARGE, 8, 0), LARGE);
        quarry_stack_pop(pool, &f);
        if (!keep) quarry_stack_reset(pool);
    }
    return frames;
}

static uint64_t run(void) {
    const bool scope = with == SCOPE;
    uint64_t done = 0;
    switch (mode) {
    case EMPTY:
        for (; done < count; done++) scope ? empty_scope() : empty_stack();
        break;
    case NESTED:
        for (; done < count; done += DEPTH) scope ? nested_scope(DEPTH) : nested_stack(DEPTH);
        break;
    case BLOCKS:
        for (; done < count; done++) with == MALLOC ? blocks_malloc() : scope ? blocks_scope()
                                                                              : blocks_stack();
        break;
    case KEPT: done = spill((count + 99) / 100, true); break;
    default: done = spill((count + 999) / 1000, false);
    }
    return done;
}

int main(int argc, char **argv) {
    phase_t all = {.name = ""};
    quarry_pool_stats_t before, after;
    scenario_begin(
        argc, argv, "frames", "Frames are opened and ended, again and again. An operation is a frame.", options);
    if (with == MALLOC && mode != BLOCKS) scenario_not_applicable("malloc has no frames");
    if (with == SCOPE && mode >= KEPT) scenario_not_applicable("the same as --with stack");
    pool = must_have(quarry_stack_create(NULL));
    quarry_stack_frame_t frame;
    t_scope;
    quarry_stack_push(pool, &frame);
    quarry_pool_stats(pool, &before);
    phase_begin(&all);
    const uint64_t frames = run();
    phase_end(&all, frames);
    quarry_pool_stats(pool, &after);
    const uint64_t taken = after.chunk_gets - before.chunk_gets;
    if ((mode == NEW && taken < frames) || (mode == KEPT && taken > 2))
        bench_fail("chunks were not taken as the mode says");
    scenario_value("chunks_taken", (double)taken);
    scenario_value("slow_calls", (double)(after.slow_calls - before.slow_calls));
    scenario_print(&all, 0, frames);
    quarry_stack_pop(pool, &frame);
    quarry_pool_destroy(pool);
    return scenario_end();
}
