// SPDX-License-Identifier: MIT
// fragmentation: what temporary blocks leave behind in the heap. Each call makes 20 temporaries of 16 bytes to 16 KiB,
// and one result of 64 to 300 bytes that stays, in random order. All temporaries end with their call, one result in
// three a thousand calls later. At the end the resident bytes are compared with those of the results.
#include <quarry/scope.h>

#include "scenario.h"

enum { MALLOC,
    SCOPE,
    TEMPORARIES = 20,
    LATER = 1000 };

static uint64_t with = SCOPE, count = 300000, seed = 1;
static const option_t options[] = {
    CHOICE("with", &with, "malloc|scope",
        "where temporaries come from: malloc, or the thread's stack; results are always malloc's"),
    NUMBER("count", &count, 1, 1 << 28, "calls"),
    OPTION_SEED(&seed),
    {0},
};

typedef struct result {
    char *ptr;
    size_t size;
} result_t;

static result_t *results;
static uint64_t kept_bytes, check;

static void keep(uint64_t call, uint64_t *state) {
    result_t *const r = &results[call];
    r->size = bench_between((uint32_t)bench_random(state), 64, 300);
    r->ptr = must_have(malloc(r->size));
    memset(r->ptr, (int)(call & 127), r->size);
    kept_bytes += r->size;
    if (call < LATER || call % 3) return;
    result_t *const old = &results[call - LATER];
    if (!old->ptr) return;
    check += (uint64_t)old->ptr[old->size - 1];
    free(old->ptr);
    kept_bytes -= old->size;
    old->ptr = NULL;
}

static char *temporary(char *p, size_t size) {
    return memset(must_have(p), 't', size);
}
static size_t temporary_size(uint64_t *state) { return bench_octaves(bench_random(state), 16, 9); }

static void call_with_malloc(uint64_t call, uint64_t *state) {
    char *p[TEMPORARIES];
    const int at = (int)(bench_random(state) % TEMPORARIES);
    for (int i = 0; i < TEMPORARIES; i++) {
        const size_t size = temporary_size(state);
        p[i] = temporary(malloc(size), size);
        if (i == at) keep(call, state);
    }
    for (int i = 0; i < TEMPORARIES; i++) free(p[i]);
}

static void call_with_scope(uint64_t call, uint64_t *state) {
    t_scope;
    const int at = (int)(bench_random(state) % TEMPORARIES);
    for (int i = 0; i < TEMPORARIES; i++) {
        const size_t size = temporary_size(state);
        temporary(t_new_raw(char, size), size);
        if (i == at) keep(call, state);
    }
}

int main(int argc, char **argv) {
    phase_t all = {.name = ""};
    scenario_begin(argc, argv, "fragmentation", "Temporaries and results that stay. An operation is a block.", options);
    results = scenario_memory(count * sizeof *results);
    const long before = scenario_rss_kib();
    uint64_t state = seed;
    phase_begin(&all);
    for (uint64_t i = 0; i < count; i++) {
        if (with == SCOPE) call_with_scope(i, &state);
        else call_with_malloc(i, &state);
    }
    phase_end(&all, count * (TEMPORARIES + 1));
    scenario_value("resident_bytes", (double)(scenario_rss_kib() - before) * 1024);
    scenario_print(&all, kept_bytes, check);
    return scenario_end();
}
