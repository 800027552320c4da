// SPDX-License-Identifier: MIT
// cache: the time of one access against the size of what is accessed, on this machine: a chain of pointers through a
// working set, one per cache line, in order and in random order. In order the processor fetches ahead; in random order
// each step is the whole latency of the level that holds the set.
#include <sys/mman.h>
#include <unistd.h>

#include "ticks.h"

static uint64_t from = 4096, to = 64 << 20, rounds = 3, seed = 1;
static const option_t options[] = {
    BYTES("from", &from, 1024, (uint64_t)1 << 36, "smallest working set"),
    BYTES("to", &to, 1024, (uint64_t)1 << 36, "largest; each is twice as large as the one before"),
    NUMBER("rounds", &rounds, 1, 1000000, "how often each; the fastest counts"),
    OPTION_SEED(&seed),
    {0},
};

static phase_t in_order = {.name = "in-order"}, random_order = {.name = "random"};
static size_t line;
static uint64_t visited;

// A ring through all lines of the set, so that a step is a load whose address is the load before. `order` has room for
// their numbers.
static void **chain(char *set, size_t lines, uint32_t *order, bool by_chance, uint64_t *state) {
    for (size_t i = 0; i < lines; i++) order[i] = (uint32_t)i;
    for (size_t i = lines - 1; by_chance && i > 0; i--) {  // Fisher and Yates
        const size_t k = bench_between((uint32_t)(bench_random(state) >> 32), 0, i);
        const uint32_t kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
    for (size_t i = 0; i < lines; i++) *(void **)(void *)(set + order[i] * line) = set + order[(i + 1) % lines] * line;
    return (void **)(void *)(set + order[0] * line);
}

static double ns_per_step(phase_t *p, void **first, size_t lines) {
    const size_t steps = lines > 1000000 ? lines : (1000000 + lines - 1) / lines * lines;  // whole turns
    void **at = first;
    double best = 1e9;
    for (size_t i = 0; i < lines; i++) at = *at;  // warm
    for (uint64_t r = 0; r < rounds; r++) {
        phase_begin(p);
        const double start = bench_now();
        for (size_t i = 0; i < steps; i++) at = *at;
        const double seconds = bench_now() - start;
        phase_end_timed(p, seconds, steps);
        if (at != first) bench_fail("a chain is not whole");
        if (seconds < best) best = seconds;
    }
    visited += steps;
    return best * 1e9 / (double)steps;
}

static void cache_value(const char *name, int which) {
    const long bytes = sysconf(which);
    if (bytes > 0) scenario_value(name, (double)bytes);
}

int main(int argc, char **argv) {
    scenario_begin(argc, argv, "cache",
        "The time of an access to working sets of growing size. An operation is an access. The series: bytes of the "
        "set, ns in order,\nns in random order, and both in cycles of the time stamp counter.",
        options);
    const long known = sysconf(_SC_LEVEL1_DCACHE_LINESIZE);
    line = known > 0 ? (size_t)known : 64;
    if (to < from || to / line > UINT32_MAX)
        scenario_not_applicable("--to is below --from, or has more lines than can be counted");
    char *const set = scenario_memory(to);
    uint32_t *const order = scenario_memory(to / line * sizeof *order);
    const double per_ns = 1 / ns_per_tick();
    uint64_t state = seed;
    scenario_columns("bytes", "in_order_ns", "random_ns", "in_order_cycles", "random_cycles", NULL);
    for (uint64_t bytes = from; bytes <= to; bytes *= 2) {
        const double ordered = ns_per_step(&in_order, chain(set, bytes / line, order, false, &state), bytes / line);
        const double chance = ns_per_step(&random_order, chain(set, bytes / line, order, true, &state), bytes / line);
        scenario_row((double)bytes, ordered, chance, ordered * per_ns, chance * per_ns);
    }
    scenario_value("line_bytes", (double)line);
    cache_value("l1d_bytes", _SC_LEVEL1_DCACHE_SIZE);
    cache_value("l2_bytes", _SC_LEVEL2_CACHE_SIZE);
    cache_value("l3_bytes", _SC_LEVEL3_CACHE_SIZE);
    scenario_value("cycles_per_ns", per_ns);
    scenario_print(&in_order, to, visited);
    scenario_print(&random_order, to, visited);
    munmap(set, to);
    return scenario_end();
}
