// SPDX-License-Identifier: MIT
// pages: where zeroed pages come from: the pool of pages, calloc, or mmap for each run of them.
#include <quarry/pages.h>
#include <sys/mman.h>
#include <unistd.h>

#include "scenario.h"

enum { PAGES,
    MALLOC,
    MMAP };
enum { TURNOVER,
    GROWING };

static uint64_t with, mode, count = 100000, size = 65536;
static const option_t options[] = {
    CHOICE("with", &with, "pages|malloc|mmap", "where they come from"),
    CHOICE("mode", &mode, "turnover|growing",
        "one run of pages at a time is taken and freed; all are taken and kept, then freed"),
    NUMBER("count", &count, 1, (uint64_t)1 << 32, "runs of pages"),
    BYTES("size", &size, 8, (uint64_t)1 << 30, "bytes of a run"),
    {0},
};

static phase_t all = {.name = ""};
static quarry_pool_t *pool;
static size_t page;

static char *take(void) {
    void *p;
    if (pool) p = quarry_pool_alloc(pool, size, 1, QUARRY_POOL_ZERO);
    else if (with == MALLOC) p = calloc(1, size);
    else p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return must_have(p == MAP_FAILED ? NULL : p);
}

static void give(char *p) {
    if (pool) quarry_pool_free(pool, p, size);
    else if (with == MALLOC) free(p);
    else munmap(p, size);
}

// A word of each page must be zero; then it is not.
static uint64_t touch(char *p) {
    uint64_t found = 0;
    for (size_t i = 0; i < size; i += page) {
        volatile uint64_t *const word = (volatile uint64_t *)(void *)(p + i);
        found |= *word;
        *word = i + 1;
    }
    return found;
}

int main(int argc, char **argv) {
    scenario_begin(argc, argv, "pages",
        "Runs of zeroed pages are taken, one word of each page is written, and they are freed. An operation is a run "
        "of pages.",
        options);
    page = (size_t)sysconf(_SC_PAGESIZE);
    if (with == PAGES) pool = must_have(quarry_pages_create(NULL));
    char **const kept = mode == GROWING ? scenario_memory(count * sizeof *kept) : NULL;
    uint64_t dirty = 0;
    phase_begin(&all);
    for (uint64_t i = 0; i < count; i++) {
        char *const p = take();
        dirty |= touch(p);
        if (kept) kept[i] = p;
        else give(p);
    }
    for (uint64_t i = 0; kept && i < count; i++) give(kept[i]);
    phase_end(&all, count);
    if (dirty) bench_fail("memory was not zero");
    scenario_print(&all, size * (kept ? count : 1), count);
    quarry_pool_destroy(pool);
    return scenario_end();
}
