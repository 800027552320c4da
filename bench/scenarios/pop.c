// SPDX-License-Identifier: MIT
// pop: how long the end of a frame takes, by the number of blocks in it. A stack looks at its chunks, and never at
// blocks; malloc must be told of each.
#include <quarry/stack.h>

#include "scenario.h"

enum { STACK,
    MALLOC };

static uint64_t with = STACK, most = 10000000, size = 16, rounds = 5;
static const option_t options[] = {
    CHOICE("with", &with, "stack|malloc", "malloc: each block is freed"),
    NUMBER("most", &most, 10, 1000000000,
        "blocks of the largest frame; the smallest has 10, each has ten times as many as the one before"),
    BYTES("size", &size, 8, 4096, "bytes of a block, of which 8 are written"),
    NUMBER("rounds", &rounds, 1, 1000000, "frames of each size; the fastest end counts"),
    {0},
};

static quarry_pool_t *pool;
static uint64_t **blocks;

// Seconds that the end of a frame of `n` blocks took.
static double one_frame(uint64_t n, phase_t *all) {
    quarry_stack_frame_t frame;
    uint64_t sum = 0;
    quarry_stack_push(pool, &frame);
    for (uint64_t i = 0; i < n; i++) {
        blocks[i] = must_have(with == MALLOC ? malloc(size) : quarry_stack_alloc(pool, size, 8, 0));
        *blocks[i] = i;
    }
    for (uint64_t i = 0; i < n; i++) sum += *blocks[i];
    if (sum != n * (n - 1) / 2) bench_fail("a block has changed");
    const double before = all->seconds;
    phase_begin(all);
    for (uint64_t i = 0; i < n && with == MALLOC; i++) free(blocks[i]);
    quarry_stack_pop(pool, &frame);
    phase_end(all, n);
    return all->seconds - before;
}

int main(int argc, char **argv) {
    phase_t all = {.name = ""};
    quarry_stack_frame_t outer;
    scenario_begin(argc, argv, "pop", "Frames of more and more blocks end. An operation is a block.", options);
    pool = must_have(quarry_stack_create(NULL));
    blocks = scenario_memory(most * sizeof *blocks);
    quarry_stack_push(pool, &outer);
    scenario_columns("blocks", "end_ns", "per_block_ns", NULL);
    double first = 0, last = 0;
    uint64_t done = 0;
    for (uint64_t n = 10; n <= most; n *= 10) {
        double best = 0;
        for (uint64_t r = 0; r < rounds; r++) {
            const double seconds = one_frame(n, &all);
            if (!r || seconds < best) best = seconds;
        }
        scenario_row((double)n, best * 1e9, best * 1e9 / (double)n);
        first = first > 0 ? first : best;
        last = best;
        done += n * rounds;
    }
    scenario_value("last_to_first", first > 0 ? last / first : 0);
    scenario_print(&all, most * size, done);
    quarry_stack_pop(pool, &outer);
    quarry_pool_destroy(pool);
    return scenario_end();
}
