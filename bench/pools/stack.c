// SPDX-License-Identifier: MIT
// stack: temporary data of functions. -w chooses the work, an operation is a block allocated and ended:
//
//   0 calls      a function makes 4 blocks of -z bytes, uses them and returns; -n blocks in all
//   1 recursion  a tree of calls, 24 deep, 3 blocks of 8 to 200 bytes in each call
//   2 list       a list of -n nodes of -z bytes, all ended at once
//   3 growth     arrays that grow by half, to 100,000 elements
//   4 edge       calls at the edge of a chunk: a frame and 10 blocks of -z bytes where little is left
//
// --with malloc frees each block; stack: a frame of a stack pool, scope: t_scope; nothing: no allocator at all, all
// blocks are one buffer: what the work itself costs.
#include <quarry/scope.h>

#include "pool_bench.h"

static quarry_pool_t *pool;
static uint64_t sum, blocks;

static inline void touch(char *p, size_t size) {
    if (__builtin_expect(!p, 0)) bench_fail("out of memory");
    p[0] = 1;
    p[size - 1] = 1;
    __asm__ volatile("" ::"r"(p)
                     : "memory");
}

// The same work thrice: how a function begins, how it gets a block, how it ends with its blocks.
#define VARIANT(kind, begin, get, drop, finish)                                                     \
    static __attribute__((noinline)) void kind##_call(size_t size) {                                \
        char *p[4];                                                                                 \
        begin;                                                                                      \
        for (int i = 0; i < 4; i++) touch(p[i] = get(size), size);                                  \
        for (int i = 4; i--;) sum += (uint64_t)p[i][0], drop(p[i]);                                 \
        finish;                                                                                     \
    }                                                                                               \
    static __attribute__((noinline)) void kind##_tree(unsigned depth, uint64_t *state) {            \
        char *p[3];                                                                                 \
        begin;                                                                                      \
        for (int i = 0; i < 3; i++) {                                                               \
            size_t size = 8 + (bench_random(state) >> 32) % 193;                                    \
            touch(p[i] = get(size), size);                                                          \
        }                                                                                           \
        blocks += 3;                                                                                \
        for (unsigned i = 0; depth && i < 1 + (depth % 3 == 0); i++) kind##_tree(depth - 1, state); \
        for (int i = 3; i--;) sum += (uint64_t)p[i][0], drop(p[i]);                                 \
        finish;                                                                                     \
    }                                                                                               \
    static __attribute__((noinline)) void kind##_list(uint64_t n, size_t size) {                    \
        char **head = NULL, **next;                                                                 \
        begin;                                                                                      \
        for (uint64_t i = 0; i < n; i++) {                                                          \
            char **node = (char **)(void *)get(size);                                               \
            if (__builtin_expect(!node, 0)) bench_fail("out of memory");                            \
            *node = (char *)head;                                                                   \
            head = node;                                                                            \
        }                                                                                           \
        for (; head; head = next) next = (char **)(void *)*head, sum++, drop(head);                 \
        finish;                                                                                     \
    }                                                                                               \
    static __attribute__((noinline)) void kind##_edge(size_t size) {                                \
        char *p[10];                                                                                \
        begin;                                                                                      \
        for (int i = 0; i < 10; i++) touch(p[i] = get(size), size);                                 \
        for (int i = 10; i--;) sum += (uint64_t)p[i][0], drop(p[i]);                                \
        finish;                                                                                     \
    }

#define NONE(p) (void)(p)
#define MALLOC(size) (char *)malloc(size)
#define STACK(size) (char *)quarry_stack_alloc(pool, (size), 8, 0)
#define SCOPE(size) (char *)quarry_stack_bump(&quarry_thread_stack, (size), 8, 0)
static char buffer[4096];
#define BUFFER(size) ((void)(size), buffer)
VARIANT(nothing, (void)0, BUFFER, NONE, (void)0)
VARIANT(malloc, (void)0, MALLOC, free, (void)0)
VARIANT(stack, quarry_stack_frame_t f; quarry_stack_push(pool, &f), STACK, NONE, quarry_stack_pop(pool, &f))
VARIANT(scope, t_scope, SCOPE, NONE, (void)0)

typedef struct kind {
    const char *name;
    void (*call)(size_t);
    void (*tree)(unsigned, uint64_t *);
    void (*list)(uint64_t, size_t);
    void (*edge)(size_t);
} kind_t;
static const kind_t kinds[] = {{"malloc", malloc_call, malloc_tree, malloc_list, malloc_edge},
    {"stack", stack_call, stack_tree, stack_list, stack_edge}, {"scope", scope_call, scope_tree, scope_list, scope_edge}, {"nothing", nothing_call, nothing_tree, nothing_list, nothing_edge}};

static void grow(const kind_t *k) {
    t_scope;
    quarry_pool_t *of = k->call == malloc_call ? NULL : k->call == stack_call ? pool
                                                                              : t_pool();
    size_t n = 0;
    uint64_t *a = NULL;
    quarry_stack_frame_t f;
    if (of) quarry_stack_push(of, &f);
    while (n < 100000) {
        size_t to = (n + 16) * 3 / 2;
        a = (uint64_t *)(of ? quarry_pool_resize(of, a, n * 8, to * 8, 8, 0) : realloc(a, to * 8));
        if (!a) bench_fail("out of memory");
        for (; n < to; n += 64) a[n] = n;
        n = to;
        blocks++;
    }
    if (of) quarry_stack_pop(of, &f);
    else free(a);
}

// Until less than `rest` bytes of the chunk are left.
static void fill(const kind_t *k, size_t rest) {
    quarry_stack_hot_t *h = k->call == stack_call ? quarry_stack_hot_of(pool) : &quarry_thread_stack;
    if (k->call == malloc_call || k->call == nothing_call) return;
    SCOPE(8);
    while ((size_t)(h->limit - h->pos) > rest) quarry_stack_bump(h, 8, 8, 0);
}

int main(int argc, char **argv) {
    static const char *const works[] = {"calls", "recursion", "list", "growth", "edge"};
    pool_bench_t b = {.scenario = "stack", .with = "malloc", .n = 20000000, .size = 48, .rounds = 3};
    pool_bench_options(&b, argc, argv);
    const kind_t *k = NULL;
    for (size_t i = 0; i < 4; i++)
        if (!strcmp(kinds[i].name, b.with)) k = &kinds[i];
    if (!k || (k->call == nothing_call && (b.which == 2 || b.which == 3))) bench_fail("--with malloc, stack, scope, or nothing (not with -w 2 and 3)");
    if (b.which < 0 || b.which > 4 || b.size < 8 || b.size > 4096) bench_fail("-w 0..4, -z 8..4096");
    pool = quarry_stack_create(NULL);
    double best = 1e9;
    uint64_t operations = b.n;
    t_scope;
    if (b.which == 4) fill(k, 3 * b.size);
    pool_bench_phase(b.rounds);
    for (unsigned r = 0; r < b.rounds; r++) {
        uint64_t state = b.which + 1;
        blocks = 0;
        double start = pool_bench_cpu();
        if (b.which == 0)
            for (uint64_t i = 0; i < b.n / 4; i++) k->call(b.size);
        if (b.which == 1)
            while (blocks < b.n) k->tree(24, &state);
        if (b.which == 2) k->list(b.n, b.size);
        if (b.which == 3)
            while (blocks < b.n / 1000) grow(k);
        if (b.which == 4)
            for (uint64_t i = 0; i < b.n / 10; i++) k->edge(b.size);
        double seconds = pool_bench_cpu() - start;
        if (blocks) operations = blocks;
        if (seconds < best) best = seconds;
    }
    quarry_pool_destroy(pool);
    pool_bench_line(&b, works[b.which], best, operations, b.which == 2 ? b.n * b.size : 0, sum ? "" : ",\"empty\":true");
    return 0;
}
