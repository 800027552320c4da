// SPDX-License-Identifier: MIT
// persist: what an operation that survives kill -9 costs, and what a sync costs. The file is made in the folder named
// by TMPDIR (else /tmp), and removed.
#include <quarry/persist.h>
#include <unistd.h>

#include "scenario.h"

enum { PERSIST,
    JOURNAL,
    MALLOC };
enum { TURNOVER,
    SYNC };
enum { LINKS = 1000 };

static uint64_t with, mode, count = 1000000, size = 64, writes = 10, seed = 1;
static const option_t options[] = {
    CHOICE("with", &with, "persist|journal|malloc",
        "a shared file; one with a journal; blocks that are lost when the process ends"),
    CHOICE("mode", &mode, "turnover|sync",
        "a block is made under one of 1000 links, or freed; blocks are written and synced"),
    NUMBER("count", &count, 1, (uint64_t)1 << 40, "turns, or syncs"),
    BYTES("size", &size, 8, 65536, "bytes of a block"),
    NUMBER("writes", &writes, 1, 1000000, "blocks that are written before each sync"),
    OPTION_SEED(&seed),
    {0},
};

static phase_t all = {.name = ""};
static quarry_persist_t *store;
static uint64_t volatile_links[LINKS], most;  // most: blocks at a time

// The number of links that have a block in the end.
static uint64_t turnover(uint64_t *links) {
    uint64_t random = seed, live = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t *const link = &links[bench_random(&random) % LINKS];
        if (store) {
            if (*link) quarry_persist_free_from(store, link);
            else if (!quarry_persist_alloc_to(store, link, size, 0)) bench_fail("out of memory");
            if (*link) *(uint64_t *)quarry_persist_at(store, *link) = i;
        } else {
            if (*link) free((void *)(uintptr_t)*link), *link = 0;
            else *link = (uint64_t)(uintptr_t)must_have(malloc(size));
            if (*link) *(uint64_t *)(uintptr_t)*link = i;
        }
        live += *link ? 1 : -UINT64_C(1);
        if (live > most) most = live;
    }
    return live;
}

static uint64_t syncs(uint64_t *links) {
    uint64_t random = seed;
    most = LINKS;
    for (uint64_t i = 0; i < count; i++) {
        for (uint64_t k = 0; k < writes; k++)
            memset(quarry_persist_at(store, links[bench_random(&random) % LINKS]), (int)i, size);
        if (quarry_persist_sync(store)) bench_fail(quarry_persist_error(NULL));
    }
    return count;
}

static uint64_t *open_store(const char *path) {
    store = quarry_persist_open(path,
        &(quarry_persist_options_t){.flags = QUARRY_PERSIST_CREATE | (with == JOURNAL ? QUARRY_PERSIST_JOURNAL : 0)});
    if (!store ||
        !quarry_persist_alloc_to(store, quarry_persist_root_link(store), sizeof volatile_links, QUARRY_POOL_ZERO))
        bench_fail(quarry_persist_error(NULL));
    return quarry_persist_at(store, quarry_persist_root(store));
}

int main(int argc, char **argv) {
    scenario_begin(argc, argv, "persist",
        "Blocks in a file that survives the process. An operation is a block made or freed, or a sync.", options);
    if (mode == SYNC && with == MALLOC) scenario_not_applicable("malloc has no sync");
    char path[4096];
    const char *const folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/bench-persist-%d", folder ? folder : "/tmp", (int)getpid());
    uint64_t *const links = with == MALLOC ? volatile_links : open_store(path);
    for (unsigned k = 0; mode == SYNC && k < LINKS; k++)
        if (!quarry_persist_alloc_to(store, &links[k], size, QUARRY_POOL_ZERO)) bench_fail("out of memory");
    phase_begin(&all);
    const uint64_t check = mode == SYNC ? syncs(links) : turnover(links);
    phase_end(&all, count);
    scenario_print(&all, size * most, check);
    if (store) quarry_persist_close(store), unlink(path);
    return scenario_end();
}
