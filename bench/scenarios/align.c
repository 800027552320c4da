// SPDX-License-Identifier: MIT
// align: rounding addresses up in two ways: the full form, which is what the stack does, and the form with a logarithm.
#include "../../src/pool/stack_align.h"

#include "scenario.h"

enum { FULL,
    LOG };
enum { TABLE = 4096 };

static uint64_t with, count = 200000000, size = 24, rounds = 3, seed = 1;
static const option_t options[] = {
    CHOICE("with", &with, "full|log", "the form"),
    NUMBER("count", &count, 1, (uint64_t)1 << 40, "blocks of a round"),
    BYTES("size", &size, 1, 4096, "bytes of a block"),
    NUMBER("rounds", &rounds, 1, 1000000, "how often"),
    OPTION_SEED(&seed),
    {0},
};

static uint8_t logs[TABLE];
static uint32_t aligns[TABLE];
static phase_t all = {.name = ""};

// Where the last block ends.
static uintptr_t blocks(void) {
    uintptr_t pos = 64;
    if (with == FULL)
        for (uint64_t i = 0; i < count; i++) pos = qy_align_full(pos, aligns[i % TABLE]) + size;
    else
        for (uint64_t i = 0; i < count; i++) pos = qy_align_log(pos, logs[i % TABLE]) + size;
    return pos;
}

int main(int argc, char **argv) {
    scenario_begin(argc, argv, "align",
        "An operation is one block of random alignment, in a loop that does nothing else.", options);
    uint64_t random = seed;
    for (int i = 0; i < TABLE; i++) aligns[i] = 1u << (logs[i] = (uint8_t)(bench_random(&random) % 7));
    uintptr_t end = 0;
    for (uint64_t r = 0; r < rounds; r++) {
        phase_begin(&all);
        const uintptr_t found = blocks();
        phase_end(&all, count);
        if (r && found != end) bench_fail("two rounds ended elsewhere");
        end = found;
    }
    scenario_print(&all, 0, end);
    return scenario_end();
}
