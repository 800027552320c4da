// SPDX-License-Identifier: MIT
// idle-return: what a program that allocated much keeps when it has freed most of it and goes idle, and then all of it.
// The program sleeps meanwhile: whatever goes back goes back by itself.
#include <unistd.h>

#include "scenario.h"

static uint64_t with, memory = 256 << 20, low = 16, high = 4096, per_cent = 90, idle = 3000, every = 100, seed = 1;
static const option_t options[] = {
    CHOICE("with", &with, "malloc", "the allocator"),
    BYTES("memory", &memory, 1 << 20, (uint64_t)1 << 38, "bytes of blocks, in all"),
    BYTES("low", &low, 8, 1 << 20, "smallest block"),
    BYTES("high", &high, 8, 1 << 20, "largest block; sizes are even between them"),
    NUMBER("per-cent", &per_cent, 1, 99, "of the blocks, chosen by chance, are freed first"),
    NUMBER("idle", &idle, 0, 600000, "milliseconds of sleep after that, and again after all are freed"),
    NUMBER("every", &every, 1, 600000, "milliseconds from one look at the memory to the next"),
    OPTION_SEED(&seed),
    {0},
};

static phase_t fill = {.name = "fill"}, most = {.name = "free-most"}, rest = {.name = "free-rest"};
static block_t *blocks;
static uint64_t count, most_blocks, live_bytes;
static long base_kib;  // the table of blocks and the program
static double start;

static double resident(void) { return (double)(scenario_rss_kib() - base_kib) * 1024; }

static double look(void) {
    const double bytes = resident();
    scenario_row(bench_now() - start, bytes, (double)live_bytes);
    return bytes;
}

static double sleep_and_look(void) {
    const double until = bench_now() + (double)idle * 1e-3;
    double bytes = look();
    while (bench_now() < until) {
        usleep((useconds_t)(every * 1000));
        bytes = look();
    }
    return bytes;
}

static void make(void) {
    uint64_t random = seed;
    phase_begin(&fill);
    for (live_bytes = 0; live_bytes < memory; count++) {
        if (count == most_blocks) bench_fail("chance made very many small blocks");
        blocks[count] = block_new(bench_between((uint32_t)bench_random(&random), low, high));
        live_bytes += blocks[count].size;
    }
    phase_end(&fill, count);
}

// Returns how many went.
static uint64_t drop(phase_t *p, uint64_t part) {
    uint64_t random = seed + 1, gone = 0;
    phase_begin(p);
    for (uint64_t i = 0; i < count; i++) {
        if (!blocks[i].size || bench_random(&random) % 100 >= part) continue;
        live_bytes -= blocks[i].size;
        block_free(blocks[i]);
        blocks[i].size = 0;
        gone++;
    }
    phase_end(p, gone);
    return gone;
}

int main(int argc, char **argv) {
    scenario_begin(argc, argv, "idle-return",
        "Memory is filled, most of it is freed, the program sleeps; all is freed, it sleeps again. An operation is a "
        "block. The series\nis of the whole run: seconds, resident bytes without the program's own, bytes of live "
        "blocks.",
        options);
    if (high < low) bench_fail("--high is below --low");
    // A tenth more than are expected, which chance does not reach.
    most_blocks = memory / ((low + high) / 2) * 11 / 10 + 1000;
    blocks = scenario_memory(most_blocks * sizeof *blocks);
    base_kib = scenario_rss_kib();
    scenario_columns("seconds", "resident_bytes", "live_bytes", NULL);
    start = bench_now();
    look();
    make();
    const uint64_t payload = live_bytes;
    const double full = look();
    drop(&most, per_cent);
    const double most_at_once = resident(), most_later = sleep_and_look(), left = (double)live_bytes;
    drop(&rest, 100);
    const double all_at_once = resident(), all_later = sleep_and_look();
    if (live_bytes) bench_fail("blocks are left");
    const double peak = (double)(scenario_peak_kib() - base_kib) * 1024;
    scenario_value("full_bytes", full);
    scenario_value("peak_bytes", peak);
    scenario_value("left_live_bytes", left);
    scenario_value("most_freed_bytes", most_at_once);
    scenario_value("most_freed_idle_bytes", most_later);
    scenario_value("all_freed_bytes", all_at_once);
    scenario_value("all_freed_idle_bytes", all_later);
    scenario_print(&fill, payload, payload ^ count << 40);
    scenario_print(&most, payload, payload ^ count << 40);
    scenario_print(&rest, payload, payload ^ count << 40);
    return scenario_end();
}
