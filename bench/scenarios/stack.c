// SPDX-License-Identifier: MIT
// stack: temporary data of functions, which ends when they return.
#include <quarry/scope.h>

#include "scenario.h"

enum { MALLOC,
    STACK,
    SCOPE,
    NOTHING };
enum { CALLS,
    RECURSION,
    GROWTH,
    EDGE };
enum { CALL_BLOCKS = 4,
    TREE_BLOCKS = 3,
    TREE_DEPTH = 24,
    EDGE_BLOCKS = 10,
    ELEMENTS = 100000 };

static uint64_t with = STACK, mode = CALLS, count = 20000000, size = 48, rounds = 3, seed = 1;
static const option_t options[] = {
    CHOICE("with", &with, "malloc|stack|scope|nothing",
        "each block freed; a frame of a stack pool; t_scope; no allocator at all"),
    CHOICE("mode", &mode, "calls|recursion|growth|edge",
        "functions with 4 blocks; a tree of calls with 3 blocks of 8 to 200 bytes each; arrays that grow by half to "
        "100,000 numbers; functions with 10 blocks at the end of a chunk"),
    NUMBER("count", &count, 1000, (uint64_t)1 << 40, "blocks in all"),
    BYTES("size", &size, 8, 4096, "bytes of a block, of which the first and the last are written and read"),
    NUMBER("rounds", &rounds, 1, 1000000, "how often"),
    OPTION_SEED(&seed),
    {0},
};

static phase_t all = {.name = ""};
static quarry_pool_t *pool;
static uint64_t sum, blocks;
static char buffer[4096];

static inline void touch(char *p, size_t bytes) {
    if (__builtin_expect(!p, 0)) bench_fail("out of memory");
    p[0] = 1;
    p[bytes - 1] = 1;
    __asm__ volatile("" ::"r"(p)
                     : "memory");
}

// The same functions four times: how one begins, how it gets a block, how it ends with its blocks.
#define VARIANT(kind, begin, get, drop, finish)                                                     \
    static __attribute__((noinline)) void kind##_call(size_t bytes) {                               \
        char *p[CALL_BLOCKS];                                                                       \
        begin;                                                                                      \
        for (int i = 0; i < CALL_BLOCKS; i++) touch(p[i] = get(bytes), bytes);                      \
        for (int i = CALL_BLOCKS; i--;) sum += (uint64_t)p[i][0], drop(p[i]);                       \
        finish;                                                                                     \
    }                                                                                               \
    static __attribute__((noinline)) void kind##_tree(unsigned depth, uint64_t *state) {            \
        char *p[TREE_BLOCKS];                                                                       \
        begin;                                                                                      \
        for (int i = 0; i < TREE_BLOCKS; i++) {                                                     \
            const size_t bytes = 8 + (bench_random(state) >> 32) % 193;                             \
            touch(p[i] = get(bytes), bytes);                                                        \
        }                                                                                           \
        blocks += TREE_BLOCKS;                                                                      \
        for (unsigned i = 0; depth && i < 1 + (depth % 3 == 0); i++) kind##_tree(depth - 1, state); \
        for (int i = TREE_BLOCKS; i--;) sum += (uint64_t)p[i][0], drop(p[i]);                       \
        finish;                                                                                     \
    }                                                                                               \
    static __attribute__((noinline)) void kind##_edge(size_t bytes) {                               \
        char *p[EDGE_BLOCKS];                                                                       \
        begin;                                                                                      \
        for (int i = 0; i < EDGE_BLOCKS; i++) touch(p[i] = get(bytes), bytes);                      \
        for (int i = EDGE_BLOCKS; i--;) sum += (uint64_t)p[i][0], drop(p[i]);                       \
        finish;                                                                                     \
    }

#define NONE(p) (void)(p)
#define FROM_MALLOC(bytes) (char *)malloc(bytes)
#define FROM_STACK(bytes) (char *)quarry_stack_alloc(pool, (bytes), 8, 0)
#define FROM_SCOPE(bytes) (char *)quarry_stack_bump(&quarry_thread_stack, (bytes), 8, 0)
#define FROM_BUFFER(bytes) ((void)(bytes), buffer)
VARIANT(nothing, (void)0, FROM_BUFFER, NONE, (void)0)
VARIANT(malloc, (void)0, FROM_MALLOC, free, (void)0)
VARIANT(stack, quarry_stack_frame_t f; quarry_stack_push(pool, &f), FROM_STACK, NONE, quarry_stack_pop(pool, &f))
VARIANT(scope, t_scope, FROM_SCOPE, NONE, (void)0)

typedef struct kind {
    void (*call)(size_t bytes);
    void (*tree)(unsigned depth, uint64_t *state);
    void (*edge)(size_t bytes);
} kind_t;
static const kind_t kinds[] = {{malloc_call, malloc_tree, malloc_edge}, {stack_call, stack_tree, stack_edge},
    {scope_call, scope_tree, scope_edge}, {nothing_call, nothing_tree, nothing_edge}};

// An array that grows by half, of which each 64th number is written and, at the end, read.
static void grow(void) {
    t_scope;
    quarry_pool_t *const of = with == MALLOC ? NULL : with == STACK ? pool
                                                                    : t_pool();
    quarry_stack_frame_t f;
    size_t n = 0;
    uint64_t *a = NULL;
    if (of) quarry_stack_push(of, &f);
    while (n < ELEMENTS) {
        const size_t to = (n + 16) * 3 / 2;
        a = must_have(of ? quarry_pool_resize(of, a, n * 8, to * 8, 8, 0) : realloc(a, to * 8));
        for (size_t i = (n + 63) / 64 * 64; i < to; i += 64) a[i] = i;
        n = to;
        blocks++;
    }
    for (size_t i = 0; i < n; i += 64) sum += a[i];
    if (of) quarry_stack_pop(of, &f);
    else free(a);
}

// Until less than `rest` bytes of the chunk are left. A pool under observation shows no limit, and has no edge.
static void fill(size_t rest) {
    quarry_stack_hot_t *const h = with == STACK ? quarry_stack_hot_of(pool) : &quarry_thread_stack;
    if (with == MALLOC || with == NOTHING) return;
    must_have(quarry_stack_bump(h, 8, 8, 0));
    while (h->limit > h->pos && (size_t)(h->limit - h->pos) > rest) must_have(quarry_stack_bump(h, 8, 8, 0));
}

static void one_round(const kind_t *k) {
    uint64_t state = seed;
    blocks = 0;
    phase_begin(&all);
    switch (mode) {
    case CALLS:
        for (; blocks < count; blocks += CALL_BLOCKS) k->call(size);
        break;
    case RECURSION:
        while (blocks < count) k->tree(TREE_DEPTH, &state);
        break;
    case GROWTH:
        while (blocks < count / 1000) grow();
        break;
    default:
        for (; blocks < count; blocks += EDGE_BLOCKS) k->edge(size);
    }
    phase_end(&all, blocks);
}

int main(int argc, char **argv) {
    scenario_begin(argc, argv, "stack",
        "Functions make blocks, use them and return. An operation is a block made and ended; with --mode growth, an "
        "array enlarged\n(a thousandth of --count).",
        options);
    if (with == NOTHING && mode == GROWTH) scenario_not_applicable("an array needs memory");
    pool = must_have(quarry_stack_create(NULL));
    t_scope;
    quarry_stack_frame_t frame;
    quarry_stack_push(pool, &frame);
    if (mode == EDGE) fill(3 * size);
    for (uint64_t r = 0; r < rounds; r++) one_round(&kinds[with]);
    if (mode != GROWTH && sum != all.operations) bench_fail("blocks have changed");
    scenario_print(&all, 0, sum);
    quarry_stack_pop(pool, &frame);
    quarry_pool_destroy(pool);
    return scenario_end();
}
