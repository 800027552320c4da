// SPDX-License-Identifier: MIT
// gdb_demo.c: a process with a pool of each kind that then aborts, for test_gdb.py: gdb_demo FILE
// FILE is where the persistent pool is made. Each kind: a live block, with text, and one that was freed if it can be.
#include <quarry/fifo.h>
#include <quarry/pages.h>
#include <quarry/persist.h>
#include <quarry/pow2.h>
#include <quarry/ring.h>
#include <quarry/scope.h>
#include <quarry/short.h>
#include <quarry/tlsf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct demo {
    quarry_pool_t *pool;
    char *live, *dead;  // dead: NULL in kinds whose blocks end together
} demo;

demo fifo, ring, message, tlsf, pow2, pow2_mapped, pages, persist, stack, scope;

__attribute__((noinline)) static char *make_block(quarry_pool_t *pool, size_t size) {
    char *p = quarry_pool_alloc(pool, size, 16, QUARRY_POOL_ZERO);
    if (!p) exit(3);
    memcpy(p, "demo", 5);
    return p;
}
__attribute__((noinline)) static void end_block(quarry_pool_t *pool, char *p, size_t size) {
    quarry_pool_free(pool, p, size);
}

static void fill(demo *d, quarry_pool_t *pool, size_t size) {
    d->pool = pool;
    if (!pool) exit(3);
    make_block(pool, size);
    d->dead = make_block(pool, size);
    d->live = make_block(pool, size);
    make_block(pool, size);
    if (quarry_pool_capabilities(pool) & QUARRY_POOL_FREES) end_block(pool, d->dead, size);
    else d->dead = NULL;
}

static void frames(void) {
    ring.pool = quarry_ring_create(&(quarry_ring_options_t){.pool = {.name = "demo ring"}});
    quarry_ring_newframe(ring.pool);
    make_block(ring.pool, 40);
    quarry_ring_seal(ring.pool);
    quarry_ring_newframe(ring.pool);
    fill(&ring, ring.pool, 40);
    r_newframe();
    fill(&message, r_pool(), 40);
}

// The place to stop at; a block changes, and the end.
__attribute__((noinline)) void finished(void) {
    fifo.live[0] = 'D';
    abort();
}

static void in_scopes(void) {
    static quarry_stack_frame_t outer, inner;
    quarry_pool_t *pool = quarry_stack_create(&(quarry_stack_options_t){.pool = {.name = "demo stack"}});
    if (!pool) exit(3);
    quarry_stack_push(pool, &outer);
    make_block(pool, 40);
    make_block(pool, 100000);  // in a chunk of its own
    quarry_stack_push(pool, &inner);
    fill(&stack, pool, 40);
    t_scope;
    fill(&scope, t_pool(), 40);
    finished();
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    fill(&fifo, quarry_fifo_create(&(quarry_fifo_options_t){.pool = {.name = "demo fifo"}}), 40);
    fill(&tlsf, quarry_tlsf_create(&(quarry_tlsf_options_t){.pool = {.name = "demo tlsf"}}), 40);
    fill(&pow2, quarry_pow2_create(&(quarry_pow2_options_t){.pool = {.name = "demo pow2"}, .partitions = 2}), 40);
    pow2_mapped = (demo){.pool = pow2.pool, .live = make_block(pow2.pool, (size_t)3 << 20)};
    fill(&pages, quarry_pages_create(&(quarry_pages_options_t){.pool = {.name = "demo pages"}}), 40000);
    quarry_persist_t *store = quarry_persist_open(
        argv[1], &(quarry_persist_options_t){.flags = QUARRY_PERSIST_CREATE, .max_bytes = (size_t)1 << 20});
    if (!store) return 3;
    fill(&persist, quarry_persist_pool(store), 40);
    frames();
    in_scopes();
}
