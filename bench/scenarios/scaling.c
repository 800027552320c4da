// SPDX-License-Identifier: MIT
// scaling: what threads cost each other that share nothing: each calls a function with four blocks, again and again, on
// its own stack or by malloc.
#include <quarry/scope.h>

#include "scenario.h"

enum { MALLOC,
    SCOPE,
    CALL_BLOCKS = 4,
    WARM = 1000 };

static uint64_t with = SCOPE, threads = 2, count = 200000, size = 48, rounds = 100;
static const option_t options[] = {
    CHOICE("with", &with, "malloc|scope", "each block freed; t_scope, the stack of the thread"),
    NUMBER("threads", &threads, 1, SCENARIO_THREADS, "that do this at the same time"),
    NUMBER("count", &count, CALL_BLOCKS, (uint64_t)1 << 40, "blocks of each thread in a round"),
    BYTES("size", &size, 8, 4096, "bytes of a block, of which the first and the last are written"),
    NUMBER("rounds", &rounds, 1, 1000000, "short ones, so that some are not disturbed by what else runs"),
    {0},
};

static inline void touch(char *p) {
    if (__builtin_expect(!p, 0)) bench_fail("out of memory");
    p[0] = p[size - 1] = 1;
    __asm__ volatile("" ::"r"(p)
                     : "memory");
}

static __attribute__((noinline)) void scope_call(uint64_t *sum) {
    char *p[CALL_BLOCKS];
    t_scope;
    for (int i = 0; i < CALL_BLOCKS; i++) touch(p[i] = (char *)quarry_stack_bump(&quarry_thread_stack, size, 8, 0));
    for (int i = CALL_BLOCKS; i--;) *sum += (uint64_t)p[i][0];
}
static __attribute__((noinline)) void malloc_call(uint64_t *sum) {
    char *p[CALL_BLOCKS];
    for (int i = 0; i < CALL_BLOCKS; i++) touch(p[i] = (char *)malloc(size));
    for (int i = CALL_BLOCKS; i--;) *sum += (uint64_t)p[i][0], free(p[i]);
}

static void warm(worker_t *w) {
    t_scope;
    for (int i = 0; i < WARM; i++) with == SCOPE ? scope_call(&w->check) : malloc_call(&w->check);
}

static void work(worker_t *w) {
    uint64_t sum = 0;
    t_scope;  // those of the calls lie within it, as in a program
    if (with == SCOPE)
        for (uint64_t i = 0; i < count / CALL_BLOCKS; i++) scope_call(&sum);
    else
        for (uint64_t i = 0; i < count / CALL_BLOCKS; i++) malloc_call(&sum);
    w->check = sum;
}

int main(int argc, char **argv) {
    phase_t all = {.name = ""};
    uint64_t check = 0, unused = 0;
    scenario_begin(argc, argv, "scaling",
        "Threads call functions with four blocks each. An operation is a block, of any thread.", options);
    const uint64_t operations = count / CALL_BLOCKS * CALL_BLOCKS * threads;
    for (uint64_t r = 0; r < rounds; r++) {
        if (!r) workers_run((unsigned)threads, warm, NULL, 1, &unused);
        phase_begin(&all);
        const double seconds = workers_run((unsigned)threads, work, NULL, 1, &check);
        phase_end_timed(&all, seconds, operations);
    }
    if (check != operations * rounds) bench_fail("a block was not written");
    scenario_value("cpu_ns_per_operation", all.cpu_seconds * 1e9 / (double)all.operations);
    scenario_print(&all, 0, check);
    return scenario_end();
}
