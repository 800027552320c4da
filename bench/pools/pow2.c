// SPDX-License-Identifier: MIT
// pow2.c: the comparison of the first power-of-two allocator: 64 slots, in which blocks of random sizes come, change and go,
// by one thread or by many, each with slots of its own.
//
//   pow2 --with pow2-1|pow2-8|malloc [-n COMMANDS] [-r REPEATS] [-t THREADS] [-w 0|1] [-z STRIDE]
//
// pow2-N: with N partitions. -w 0: sizes 46 to 102,400; -w 1: 274 to 16 MiB. A command on an empty slot allocates, on a
// full one resizes or frees, half of the time each. -z: one byte in so many is written (0: none but the first and last).
#include <quarry/pow2.h>

#include "pool_bench.h"

#define SLOTS 64

static pool_bench_t b = {.scenario = "slots", .with = "pow2-8", .n = 24000, .size = 4096, .rounds = 20, .threads = 1};
static quarry_pool_t *pool;

static void touch(char *p, size_t size) {
    for (size_t i = 0; b.size && i < size; i += b.size) p[i] = 1;
    p[0] = p[size - 1] = 1;
}

static void *body(void *arg) {
    bench_thread_t *t = arg;
    char *slot[SLOTS] = {NULL};
    size_t size[SLOTS] = {0}, live = 0;
    for (unsigned round = 0; round < b.rounds; round++) {
        uint64_t random = t->random;  // the same commands again
        for (uint64_t i = 0; i < b.n; i++) {
            const uint64_t r = bench_random(&random);
            const size_t n = b.which ? bench_between((uint32_t)r, 274, 16 << 20) : bench_between((uint32_t)r, 46, 102400);
            const size_t s = (r >> 32) % SLOTS;
            if (slot[s] && r >> 63) {
                if (pool) quarry_pool_free(pool, slot[s], size[s]);
                else free(slot[s]);
                live -= size[s];
                slot[s] = NULL;
                size[s] = 0;
                continue;
            }
            char *p = pool ? quarry_pool_resize(pool, slot[s], size[s], n, 16, 0) : realloc(slot[s], n);
            if (!p) bench_fail("out of memory");
            live += n - size[s];
            if (live > t->check) t->check = live;
            slot[s] = p;
            size[s] = n;
            touch(p, n);
        }
        for (size_t s = 0; s < SLOTS; s++) {
            if (slot[s] && pool) quarry_pool_free(pool, slot[s], size[s]);
            else free(slot[s]);
            live -= size[s];
            slot[s] = NULL;
            size[s] = 0;
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    pool_bench_options(&b, argc, argv);
    if (!strncmp(b.with, "pow2-", 5)) {
        pool = quarry_pow2_create(&(quarry_pow2_options_t){.partitions = (unsigned)atoi(b.with + 5)});
        if (!pool) bench_fail("no pool");
    }
    const bench_t shape = {"slots", b.threads, b.n, 1, 0};
    pool_bench_phase(1);
    const double start = bench_now();
    const uint64_t peak = bench_threads(&shape, body, NULL, b.n * b.threads, 1);
    const double seconds = bench_now() - start;
    char more[300] = "";
    if (pool) {
        quarry_pow2_stats_t s;
        uint64_t takes = 0, contended = 0;
        quarry_pow2_stats(pool, &s);
        for (unsigned i = 0; i < s.partitions; i++) {
            quarry_pow2_partition_stats_t q;
            quarry_pow2_partition_stats(pool, i, &q);
            takes += q.takes;
            contended += q.contended;
        }
        snprintf(more, sizeof more, ",\"locks_taken\":%" PRIu64 ",\"contended\":%" PRIu64 ",\"waste\":%.3f,\"region_bytes\":%zu,\"joined\":%" PRIu64, takes, contended,
            s.rounded_bytes ? 1 - (double)s.requested_bytes / (double)s.rounded_bytes : 0, s.region_bytes, s.resized_by_join);
    }
    pool_bench_line(&b, b.which ? "large" : "small", seconds, b.n * b.rounds * b.threads, peak, more);
    quarry_pool_destroy(pool);
    return 0;
}
