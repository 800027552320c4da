// SPDX-License-Identifier: MIT
// pool_bench.h: what the programs of bench/pools share: options, and the one line of JSON.
#ifndef POOL_BENCH_H
#define POOL_BENCH_H

#include "../quick/bench.h"

typedef struct pool_bench {
    const char *scenario, *with;  // with: "malloc" or a kind of pool
    uint64_t n;
    size_t size;
    unsigned rounds, threads;
    int which;
} pool_bench_t;

// --with NAME -n COUNT -z SIZE -r ROUNDS -t THREADS -w WHICH
static inline void pool_bench_options(pool_bench_t *b, int argc, char **argv) {
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *value = argv[i + 1];
        if (!strcmp(argv[i], "--with")) b->with = value;
        else if (!strcmp(argv[i], "-n")) b->n = strtoull(value, NULL, 10);
        else if (!strcmp(argv[i], "-z")) b->size = strtoull(value, NULL, 10);
        else if (!strcmp(argv[i], "-r")) b->rounds = (unsigned)strtoul(value, NULL, 10);
        else if (!strcmp(argv[i], "-t")) b->threads = (unsigned)strtoul(value, NULL, 10);
        else if (!strcmp(argv[i], "-w")) b->which = atoi(value);
        else goto usage;
    }
    if (argc % 2) return;
usage:
    fprintf(stderr, "usage: %s [--with malloc|POOL] [-n COUNT] [-z SIZE] [-r ROUNDS] [-t THREADS] [-w WHICH]\n", argv[0]);
    exit(2);
}

// Processor time of this thread: what a loaded machine does not disturb as much as the clock on the wall.
static inline double pool_bench_cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// Resident bytes now, from the kernel.
static inline long pool_bench_rss_kib(void) {
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "VmRSS: %ld", &kib) == 1) break;
    }
    if (file) fclose(file);
    return kib;
}

// A phase of `rounds` equal rounds begins: from here to its first line, things are counted (bench/common/counters.h).
static unsigned pool_bench_rounds;
static inline void pool_bench_phase(unsigned rounds) {
    pool_bench_rounds = rounds;
    bench_count();
}

// The phase has ended. `more`: further members of the object, each with a comma before it.
static inline void pool_bench_line(const pool_bench_t *b, const char *phase, double seconds, uint64_t operations, uint64_t payload_bytes, const char *more) {
    printf("{\"scenario\":\"%s%s%s\",\"allocator\":\"%s\",\"size\":%zu,\"seconds\":%.6f,\"operations\":%" PRIu64 ",\"ns_per_operation\":%.2f,\"rss_peak_kib\":%ld,\"payload_bytes\":%" PRIu64 "%s",
        b->scenario, *phase ? "-" : "", phase, b->with, b->size, seconds, operations, seconds * 1e9 / (double)operations, bench_peak_kib(), payload_bytes, more);
    if (pool_bench_rounds) {
        char counted[COUNTERS_TEXT];
        counters_end(&bench_counters, counted);
        printf(",\"counters\":{\"rounds\":%u,%s}", pool_bench_rounds, counted);
        pool_bench_rounds = 0;
    }
    printf("}\n");
}

#endif
