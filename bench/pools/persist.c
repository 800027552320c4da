// SPDX-License-Identifier: MIT
// persist.c: what an operation that survives kill -9 costs, and what a sync costs.
//
//   -w 0  turnover: -n times a block of -z bytes is made under one of 1,000 links and one is freed; --with malloc: the same
//         with links that are lost when the process ends
//   -w 1  sync: -n times -r blocks of -z bytes are written and synced; --with persist (shared) | journal
// The file is made in the folder named by QUARRY_BENCH_FOLDER (else /tmp) and removed.
#include <unistd.h>

#include "pool_bench.h"
#include "quarry/persist.h"

#define LINKS 1000

static quarry_persist_t *store;

static void turnover(pool_bench_t *b, uint64_t *links) {
    uint64_t random = 1;
    for (uint64_t i = 0; i < b->n; i++) {
        uint64_t *link = &links[bench_random(&random) % LINKS];
        if (store) {
            if (*link) quarry_persist_free_from(store, link);
            else if (!quarry_persist_alloc_to(store, link, b->size, 0)) bench_fail("out of memory");
            if (*link) *(uint64_t *)quarry_persist_at(store, *link) = i;
        } else {
            if (*link) free((void *)(uintptr_t)*link), *link = 0;
            else *link = (uint64_t)(uintptr_t)malloc(b->size);
            if (*link) *(uint64_t *)(uintptr_t)*link = i;
        }
    }
}

static void syncs(pool_bench_t *b, uint64_t *links) {
    for (unsigned k = 0; k < LINKS; k++)
        if (!quarry_persist_alloc_to(store, &links[k], b->size, QUARRY_POOL_ZERO)) bench_fail("out of memory");
    uint64_t random = 1;
    for (uint64_t i = 0; i < b->n; i++) {
        for (unsigned k = 0; k < b->rounds; k++) memset(quarry_persist_at(store, links[bench_random(&random) % LINKS]), (int)i, b->size);
        if (quarry_persist_sync(store)) bench_fail(quarry_persist_error(NULL));
    }
}

int main(int argc, char **argv) {
    pool_bench_t b = {.scenario = "persist", .with = "persist", .n = 1000000, .size = 64, .rounds = 10};
    static uint64_t volatile_links[LINKS];
    char path[300];
    const char *folder = getenv("QUARRY_BENCH_FOLDER");
    pool_bench_options(&b, argc, argv);
    if (b.size < 8 || !b.n) bench_fail("options");
    snprintf(path, sizeof path, "%s/bench-persist-%d", folder ? folder : "/tmp", (int)getpid());
    uint64_t *links = volatile_links;
    if (strcmp(b.with, "malloc")) {
        unsigned mode = strcmp(b.with, "journal") ? 0 : QUARRY_PERSIST_JOURNAL;
        store = quarry_persist_open(path, &(quarry_persist_options_t){.flags = QUARRY_PERSIST_CREATE | mode});
        if (!store || !quarry_persist_alloc_to(store, quarry_persist_root_link(store), sizeof volatile_links, QUARRY_POOL_ZERO)) bench_fail(quarry_persist_error(NULL));
        links = (uint64_t *)quarry_persist_at(store, quarry_persist_root(store));
    }
    if (b.which && !store) bench_fail("malloc has no sync");
    pool_bench_phase(1);
    double start = bench_now();
    if (b.which) syncs(&b, links);
    else turnover(&b, links);
    double seconds = bench_now() - start;
    pool_bench_line(&b, b.which ? "sync" : "turnover", seconds, b.n, b.size * LINKS, "");
    quarry_persist_close(store);
    unlink(path);
    return 0;
}
