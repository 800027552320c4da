// SPDX-License-Identifier: MIT
// locality: the time of one access against the size of what is accessed, on this machine: a chain of pointers through a
// working set of 4 KiB to -n KiB (65,536), one per cache line, in order and in random order; the best of -r rounds. In order the
// processor fetches ahead; in random order each step is the whole latency of the level that holds the set. A table for
// people, in which each row is followed by a line of JSON.
#include <unistd.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "pool_bench.h"

// A ring through all lines of the set, so that a step is a load whose address is the load before.
static void **chain(char *set, size_t lines, size_t line, int random, uint64_t *state) {
    size_t *order = malloc(lines * sizeof *order);
    if (!order) bench_fail("out of memory");
    for (size_t i = 0; i < lines; i++) order[i] = i;
    for (size_t i = lines - 1; random && i > 0; i--) {  // Fisher and Yates
        size_t k = bench_between((uint32_t)(bench_random(state) >> 32), 0, i), kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
    for (size_t i = 0; i < lines; i++) *(void **)(void *)(set + order[i] * line) = set + order[(i + 1) % lines] * line;
    void **first = (void **)(void *)(set + order[0] * line);
    free(order);
    return first;
}

static double ns_per_step(void **at, size_t steps, unsigned rounds) {
    for (size_t i = 0; i < steps / 8; i++) at = *at;  // warm
    double best = 1e9;
    for (unsigned round = 0; round < rounds; round++) {
        double start = pool_bench_cpu();
        for (size_t i = 0; i < steps; i++) at = *at;
        double seconds = pool_bench_cpu() - start;
        if (seconds < best) best = seconds;
    }
    if (!at) bench_fail("a chain with an end");  // and the loop has a result
    return best * 1e9 / (double)steps;
}

// Cycles in a nanosecond, of the counter that ticks at the processor's nominal rate whatever it runs at; 0: not known.
static double cycles_per_ns(void) {
#if defined(__x86_64__)
    const double start = bench_now();
    const uint64_t from = __rdtsc();
    while (bench_now() - start < 0.1) {}
    return (double)(__rdtsc() - from) / ((bench_now() - start) * 1e9);
#else
    return 0;
#endif
}

static const char *level_of(size_t bytes) {
    static const struct {
        int name;
        const char *text;
    } levels[] = {{_SC_LEVEL1_DCACHE_SIZE, "L1d"}, {_SC_LEVEL2_CACHE_SIZE, "L2"}, {_SC_LEVEL3_CACHE_SIZE, "L3"}};
    for (size_t i = 0; i < 3; i++) {
        const long size = sysconf(levels[i].name);
        if (size > 0 && bytes <= (size_t)size) return levels[i].text;
    }
    return "memory";
}

int main(int argc, char **argv) {
    pool_bench_t b = {.scenario = "locality", .with = "malloc", .n = 65536, .rounds = 3};
    pool_bench_options(&b, argc, argv);
    long line = sysconf(_SC_LEVEL1_DCACHE_LINESIZE);
    if (line <= 0) line = 64;
    printf("cache line %ld bytes; L1d %ld KiB, L2 %ld KiB, L3 %ld KiB as the system says\n", line, sysconf(_SC_LEVEL1_DCACHE_SIZE) / 1024,
        sysconf(_SC_LEVEL2_CACHE_SIZE) / 1024, sysconf(_SC_LEVEL3_CACHE_SIZE) / 1024);
    const double cycles = cycles_per_ns();
    printf("%.2f cycles in a nanosecond\n%14s%8s%18s%18s\n", cycles, "working set", "level", "in order, ns", "random, ns");
    char *set = aligned_alloc(4096, (size_t)b.n * 1024);
    if (!set) bench_fail("out of memory");
    uint64_t state = 1;
    for (size_t kib = 4; kib <= b.n; kib *= 2) {
        size_t lines = kib * 1024 / (size_t)line, steps = lines > 1000000 ? lines : 1000000;
        double in_order = ns_per_step(chain(set, lines, (size_t)line, 0, &state), steps, b.rounds);
        double random = ns_per_step(chain(set, lines, (size_t)line, 1, &state), steps, b.rounds);
        printf("%10zu KiB%8s%18.2f%18.2f\n", kib, level_of(kib * 1024), in_order, random);
        printf("{\"scenario\":\"locality\",\"kib\":%zu,\"level\":\"%s\",\"in_order_ns\":%.3f,\"random_ns\":%.3f,\"in_order_cycles\":%.2f,\"random_cycles\":%.2f}\n", kib,
            level_of(kib * 1024), in_order, random, in_order * cycles, random * cycles);
    }
    free(set);
    return 0;
}
