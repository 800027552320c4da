// SPDX-License-Identifier: MIT
// bench.h: what the ten workloads share: options, threads, and the one line of JSON at the end. Plain malloc and free;
// which malloc that is, is up to who runs the program.
#ifndef BENCH_H
#define BENCH_H

#include <pthread.h>

#include "../common/counters.h"
#include "../common/work.h"

typedef struct bench {
    const char *name;
    unsigned threads;
    uint64_t ops;   // in all; each thread does its share
    uint64_t seed;  // the same seed is the same work, whatever the malloc
    double start;
} bench_t;

// ---- counters of the phase that is measured ----

static counters_t bench_counters;

// With QUARRY_BENCH_COUNTERS those of the processor as well, which slow down threads that start and wait.
static inline void bench_count(void) {
    counters_begin(&bench_counters, getenv("QUARRY_BENCH_COUNTERS") ? counters_hardware : NULL);
}

// ---- begin and end ----

// --threads N --ops N --seed N; the clock starts.
static inline bench_t bench_begin(int argc, char **argv, const char *name, unsigned threads, uint64_t ops) {
    bench_t b = {name, threads, ops, 1, 0};
    for (int i = 1; i < argc; i += 2) {
        char *end = NULL;
        const uint64_t value = i + 1 < argc ? strtoull(argv[i + 1], &end, 10) : 0;
        const int good = end && end != argv[i + 1] && !*end && value;
        if (good && !strcmp(argv[i], "--threads") && value <= 256) b.threads = (unsigned)value;
        else if (good && !strcmp(argv[i], "--ops")) b.ops = value;
        else if (good && !strcmp(argv[i], "--seed")) b.seed = value;
        else {
            fprintf(stderr, "usage: %s [--threads 1..256] [--ops N] [--seed N]\n", argv[0]);
            exit(2);
        }
    }
    bench_count();
    b.start = bench_now();
    return b;
}

// The process's peak from the kernel's view of this program alone: getrusage would start with that of
// the process that started us.
static inline long bench_peak_kib(void) {
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "VmHWM: %ld", &kib) == 1) break;
    }
    if (file) fclose(file);
    return kib;
}

// `check` is a result of the work: it must not depend on the malloc.
static inline int bench_end(const bench_t *b, uint64_t check) {
    const double seconds = bench_now() - b->start;
    char counted[COUNTERS_TEXT];
    counters_end(&bench_counters, counted);
    printf("{\"name\":\"%s\",\"threads\":%u,\"seed\":%" PRIu64 ",\"ops\":%" PRIu64
           ",\"seconds\":%.6f,\"peak_kib\":%ld,\"check\":\"%016" PRIx64 "\",\"counters\":{%s}}\n",
        b->name, b->threads, b->seed, b->ops, seconds, bench_peak_kib(), check, counted);
    return fflush(stdout) ? 1 : 0;
}

// ---- threads ----

typedef struct bench_thread {
    const bench_t *bench;
    unsigned number;
    uint64_t ops;     // this thread's share
    uint64_t random;  // and its random numbers
    uint64_t check;   // its part of the result
    void *shared;
    pthread_t id;
    // Threads write to theirs all the time: wherever a malloc puts them, no two in one line (or in a pair that is
    // fetched together).
    char apart[128];
} bench_thread_t;

// Run body in as many threads as asked for (in this one, if one) and wait; the sum of their checks.
static inline uint64_t bench_threads(
    const bench_t *b, void *(*body)(void *), void *shared, uint64_t ops, uint64_t salt) {
    bench_thread_t *threads = (bench_thread_t *)calloc(b->threads, sizeof *threads);
    uint64_t sum = 0;
    if (!threads) bench_fail("out of memory");
    for (unsigned i = 0; i < b->threads; i++) {
        bench_thread_t *t = &threads[i];
        t->bench = b;
        t->number = i;
        t->ops = ops / b->threads;
        t->random = (b->seed * 1000003 + salt) * 1000003 + i;
        t->shared = shared;
        if (b->threads == 1) body(t);
        else if (pthread_create(&t->id, NULL, body, t)) bench_fail("no thread");
    }
    for (unsigned i = 0; i < b->threads; i++) {
        if (b->threads > 1) pthread_join(threads[i].id, NULL);
        sum += threads[i].check;
    }
    free(threads);
    return sum;
}

#endif
