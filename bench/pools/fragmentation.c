// SPDX-License-Identifier: MIT
// fragmentation: what temporary blocks leave behind in the heap. Each of -n calls makes 20 temporaries of 16 bytes to 16 KiB, and
// one result of 64 to 300 bytes that stays, in random order. All temporaries end with their call, one result in three a
// thousand calls later. At the end the resident bytes are compared with those of the results.
// --with malloc: all from malloc. --with scope: the temporaries from the thread's stack, the results from malloc.
#include <quarry/scope.h>

#include "pool_bench.h"

enum { TEMPORARIES = 20,
    LATER = 1000 };

typedef struct result {
    char *ptr;
    size_t size;
} result_t;

static result_t *results;
static uint64_t kept_bytes;

static void keep(uint64_t call, uint64_t *state) {
    result_t *r = &results[call];
    r->size = bench_between((uint32_t)bench_random(state), 64, 300);
    r->ptr = malloc(r->size);
    if (!r->ptr) bench_fail("out of memory");
    memset(r->ptr, 'r', r->size);
    kept_bytes += r->size;
    if (call < LATER || call % 3) return;
    result_t *old = &results[call - LATER];
    if (!old->ptr) return;
    free(old->ptr);
    kept_bytes -= old->size;
    old->ptr = NULL;
}

static size_t temporary_size(uint64_t *state) { return bench_octaves(bench_random(state), 16, 9); }

static void call_with_malloc(uint64_t call, uint64_t *state) {
    char *temporary[TEMPORARIES];
    int at = (int)(bench_random(state) % TEMPORARIES);
    for (int i = 0; i < TEMPORARIES; i++) {
        size_t size = temporary_size(state);
        temporary[i] = malloc(size);
        if (!temporary[i]) bench_fail("out of memory");
        memset(temporary[i], 't', size);
        if (i == at) keep(call, state);
    }
    for (int i = 0; i < TEMPORARIES; i++) free(temporary[i]);
}

static void call_with_scope(uint64_t call, uint64_t *state) {
    t_scope;
    int at = (int)(bench_random(state) % TEMPORARIES);
    for (int i = 0; i < TEMPORARIES; i++) {
        size_t size = temporary_size(state);
        char *temporary = t_new_raw(char, size);
        if (!temporary) bench_fail("out of memory");
        memset(temporary, 't', size);
        if (i == at) keep(call, state);
    }
}

int main(int argc, char **argv) {
    pool_bench_t b = {.scenario = "fragmentation", .with = "malloc", .n = 300000};
    pool_bench_options(&b, argc, argv);
    int scope = !strcmp(b.with, "scope");
    if (!scope && strcmp(b.with, "malloc") != 0) bench_fail("--with malloc or scope");
    results = calloc(b.n, sizeof *results);
    if (!results) bench_fail("out of memory");
    uint64_t state = 1;
    pool_bench_phase(1);
    double start = pool_bench_cpu();
    for (uint64_t i = 0; i < b.n; i++) {
        if (scope) call_with_scope(i, &state);
        else call_with_malloc(i, &state);
    }
    double seconds = pool_bench_cpu() - start;
    char more[64];
    snprintf(more, sizeof more, ",\"rss_kib\":%ld", pool_bench_rss_kib());
    pool_bench_line(&b, "", seconds, b.n * (TEMPORARIES + 1), kept_bytes + b.n * sizeof *results, more);
    return 0;
}
