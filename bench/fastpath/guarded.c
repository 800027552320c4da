// SPDX-License-Identifier: MIT
// guarded.c: what programs do with pools, for scripts/guarded.py, which counts what checking them costs.
//
//   guarded CASE COUNT
//
// Each case is one kind, with blocks of 16 to 79 bytes whose first word is written and read, as most programs of
// bench/scenarios do: frames within frames, a queue, messages, and blocks that end in an order by chance.
#include <quarry/fifo.h>
#include <quarry/pow2.h>
#include <quarry/ring.h>
#include <quarry/scope.h>
#include <quarry/tlsf.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIVE = 64,
    DEPTH = 8,
    LEAST = 16 };

static uint64_t sum;
static uint32_t state = 1;

static size_t some_size(void) {
    state = state * 1664525u + 1013904223u;
    return LEAST + (state >> 26);
}

static void use(void *block, size_t size) {
    volatile size_t *p = block;
    if (!p) abort();
    *p = size;
    sum += *p;
}

static __attribute__((noinline)) void scopes(long depth) {
    t_scope;
    size_t size = some_size();
    use(t_new_raw(unsigned char, size), size);
    if (depth) scopes(depth - 1);
    use(t_new_raw(unsigned char, size), size);
}
static void scope(long count) {
    for (long i = 0; i < count; i++) scopes(i % DEPTH);
}

static __attribute__((noinline)) void frames(quarry_pool_t *pool, long depth) {
    quarry_stack_frame_t frame;
    quarry_stack_push(pool, &frame);
    size_t size = some_size();
    use(quarry_stack_alloc(pool, size, 8, 0), size);
    if (depth) frames(pool, depth - 1);
    quarry_stack_pop(pool, &frame);
}
static void stack(long count) {
    quarry_pool_t *pool = quarry_stack_create(NULL);
    for (long i = 0; i < count; i++) frames(pool, i % DEPTH);
    quarry_pool_destroy(pool);
}

static void fifo(long count) {
    quarry_pool_t *pool = quarry_fifo_create(NULL);
    void *queue[LIVE] = {NULL};
    for (long i = 0; i < count; i++) {
        if (queue[i % LIVE]) quarry_fifo_free(pool, queue[i % LIVE], QUARRY_SIZE_UNKNOWN);
        size_t size = some_size();
        use(queue[i % LIVE] = quarry_fifo_alloc(pool, size, 8, 0), size);
    }
    for (int i = 0; i < LIVE; i++) quarry_fifo_free(pool, queue[i], QUARRY_SIZE_UNKNOWN);
    quarry_pool_destroy(pool);
}

// A message is a few blocks.
static void ring(long count) {
    quarry_pool_t *pool = quarry_ring_create(NULL);
    quarry_ring_frame_t sent[LIVE];
    for (long i = 0; i < count; i++) {
        if (i >= LIVE) quarry_ring_release(sent[i % LIVE]);
        sent[i % LIVE] = quarry_ring_newframe(pool);
        for (int part = 0; part < 3; part++) {
            size_t size = some_size();
            use(quarry_ring_alloc(pool, size, 8, 0), size);
        }
        quarry_ring_seal(pool);
    }
    for (long i = count < LIVE ? 0 : count - LIVE; i < count; i++) quarry_ring_release(sent[i % LIVE]);
    quarry_pool_destroy(pool);
}

static void any_order(quarry_pool_t *pool, long count) {
    void *place[LIVE] = {NULL};
    for (long i = 0; i < count; i++) {
        size_t size = some_size(), at = some_size() % LIVE;
        quarry_pool_free(pool, place[at], QUARRY_SIZE_UNKNOWN);
        use(place[at] = quarry_pool_alloc(pool, size, 16, 0), size);
    }
    for (int i = 0; i < LIVE; i++) quarry_pool_free(pool, place[i], QUARRY_SIZE_UNKNOWN);
    quarry_pool_destroy(pool);
}
static void tlsf(long count) { any_order(quarry_tlsf_create(NULL), count); }
static void pow2(long count) { any_order(quarry_pow2_create(NULL), count); }

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(long count);
    } cases[] = {{"scope", scope}, {"stack", stack}, {"fifo", fifo}, {"ring", ring}, {"tlsf", tlsf}, {"pow2", pow2}};
    for (size_t i = 0; argc == 3 && i < sizeof cases / sizeof cases[0]; i++) {
        if (!strcmp(argv[1], cases[i].name)) {
            cases[i].run(strtol(argv[2], NULL, 10));
            return sum == 0;
        }
    }
    fputs("usage: guarded scope|stack|fifo|ring|tlsf|pow2 COUNT\n", stderr);
    return 2;
}
