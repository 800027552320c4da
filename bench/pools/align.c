// SPDX-License-Identifier: MIT
// align: rounding addresses up in two ways: -w 0 the full form (what the stack does), -w 1 the form with a
// logarithm. An operation is one block of random alignment and -z bytes, in a loop that does nothing else.
#include "../../src/pool/stack_align.h"

#include "pool_bench.h"

enum { TABLE = 4096 };

int main(int argc, char **argv) {
    pool_bench_t b = {.scenario = "align", .with = "pool", .n = 200000000, .size = 24, .rounds = 3};
    pool_bench_options(&b, argc, argv);
    static uint8_t logs[TABLE];
    static uint32_t aligns[TABLE];
    uint64_t state = 1;
    for (int i = 0; i < TABLE; i++) aligns[i] = 1u << (logs[i] = (uint8_t)(bench_random(&state) % 7));
    double best = 1e9;
    uintptr_t ends[2] = {0, 0};
    pool_bench_phase(b.rounds);
    for (unsigned r = 0; r < b.rounds; r++) {
        uintptr_t pos = 64;
        double start = pool_bench_cpu();
        if (b.which == 0)
            for (uint64_t i = 0; i < b.n; i++) pos = qy_align_full(pos, aligns[i % TABLE]) + b.size;
        else
            for (uint64_t i = 0; i < b.n; i++) pos = qy_align_log(pos, logs[i % TABLE]) + b.size;
        double seconds = pool_bench_cpu() - start;
        if (seconds < best) best = seconds;
        ends[r & 1] = pos;
    }
    if (b.rounds > 1 && ends[0] != ends[1]) bench_fail("two rounds ended elsewhere");
    char more[64];
    snprintf(more, sizeof more, ",\"end\":%" PRIuPTR, ends[0]);
    pool_bench_line(&b, b.which ? "log" : "full", best, b.n, 0, more);
    return 0;
}
