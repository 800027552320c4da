// SPDX-License-Identifier: MIT
// list: a linked list of -n nodes of -z bytes: built, walked, freed, -r times. The best round of each phase counts (an
// operation is a node built and freed, time is that of the processor); resident bytes are those of the first full list.
// --with malloc, ring, fifo, or fifo-keep: a FIFO that keeps all its pages for the next round, as mallocs do.
#include <quarry/fifo.h>
#include <quarry/ring.h>

#include "pool_bench.h"

typedef struct node {
    struct node *next;
} node_t;

typedef struct phases {
    double build, walk, drop;
    long rss_kib;
} phases_t;

static quarry_pool_t *pool;
static quarry_ring_frame_t frame;

// What a kind does at the start of a round, for a node, and at the end.
#define ROUND(name, begin, get, put, end)                                \
    static phases_t name(uint64_t n, size_t size) {                      \
        phases_t t = {0};                                                \
        long before = pool_bench_rss_kib();                              \
        double start = pool_bench_cpu();                                 \
        node_t *head = NULL, *next;                                      \
        (void)size;                                                      \
        begin;                                                           \
        for (uint64_t i = 0; i < n; i++) {                               \
            node_t *node = get;                                          \
            if (__builtin_expect(!node, 0)) bench_fail("out of memory"); \
            node->next = head;                                           \
            head = node;                                                 \
        }                                                                \
        t.build = pool_bench_cpu() - start;                              \
        t.rss_kib = pool_bench_rss_kib() - before;                       \
        start = pool_bench_cpu();                                        \
        uint64_t found = 0;                                              \
        for (node_t *node = head; node; node = node->next) found++;      \
        if (found != n) bench_fail("the list is not whole");             \
        t.walk = pool_bench_cpu() - start;                               \
        start = pool_bench_cpu();                                        \
        for (node_t *node = head; node; node = next) {                   \
            next = node->next;                                           \
            put;                                                         \
        }                                                                \
        end;                                                             \
        t.drop = pool_bench_cpu() - start;                               \
        return t;                                                        \
    }

// A frame frees its nodes at once: the loop over them is empty, and the compiler may leave it out.
ROUND(with_malloc, (void)0, malloc(size), free(node), (void)0)
ROUND(with_fifo, (void)0, quarry_fifo_alloc(pool, size, 8, 0), quarry_fifo_free(pool, node, size), (void)0)
ROUND(
    with_ring, frame = quarry_ring_newframe(pool), quarry_ring_alloc(pool, size, 8, 0), { head = NULL; break; }, quarry_ring_release(quarry_ring_seal(pool)))

int main(int argc, char **argv) {
    pool_bench_t b = {.scenario = "list", .with = "malloc", .n = 10000000, .size = 8, .rounds = 3};
    pool_bench_options(&b, argc, argv);
    phases_t (*round)(uint64_t, size_t) = with_malloc;
    if (!strcmp(b.with, "fifo")) round = with_fifo, pool = quarry_fifo_create(NULL);
    else if (!strcmp(b.with, "fifo-keep")) round = with_fifo, pool = quarry_fifo_create(&(quarry_fifo_options_t){.spare_pages = UINT32_MAX});
    else if (!strcmp(b.with, "ring")) round = with_ring, pool = quarry_ring_create(NULL);
    else if (strcmp(b.with, "malloc")) bench_fail("--with malloc, fifo, fifo-keep or ring");
    phases_t best = {1e9, 1e9, 1e9, 0};
    pool_bench_phase(b.rounds);
    for (unsigned r = 0; r < b.rounds; r++) {
        phases_t t = round(b.n, b.size);
        if (t.build < best.build) best.build = t.build;
        if (t.walk < best.walk) best.walk = t.walk;
        if (t.drop < best.drop) best.drop = t.drop;
        if (r == 0) best.rss_kib = t.rss_kib;
    }
    char more[256];
    snprintf(more, sizeof more, ",\"build_seconds\":%.6f,\"walk_seconds\":%.6f,\"free_seconds\":%.6f,\"resident_bytes\":%ld,\"resident_per_payload\":%.3f",
        best.build, best.walk, best.drop, best.rss_kib * 1024, (double)best.rss_kib * 1024 / (double)(b.n * b.size));
    pool_bench_line(&b, "", best.build + best.drop, b.n, b.n * b.size, more);
    return 0;
}
