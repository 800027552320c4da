// SPDX-License-Identifier: MIT
// What malloc and heaps are as pools.
#include <quarry/heap.h>
#include <quarry/pool.h>

#include "kinds.h"

static quarry_pool_t *libc_create(const quarry_pool_options_t *options) {
    (void)options;
    return quarry_libc_pool();
}
POOL_KIND(libc, .create = libc_create, .clears = true)

static quarry_pool_t *general_create(const quarry_pool_options_t *options) { return quarry_heap_pool(NULL, options); }
POOL_KIND(general_heap, .create = general_create)

// One heap at a time for the pool under test, and one for a parent.
static struct {
    quarry_pool_t *pool;
    quarry_heap_t *heap;
} made[4];

static quarry_pool_t *heap_create(const quarry_pool_options_t *options) {
    int i = 0;
    while (made[i].pool) i++;
    made[i].heap = quarry_heap_create(&(quarry_heap_options_t){.limit = options ? options->limit : 0});
    if (!made[i].heap) return NULL;
    made[i].pool = quarry_heap_pool(made[i].heap, options);
    if (!made[i].pool) quarry_heap_destroy(made[i].heap);
    return made[i].pool;
}
static void heap_destroy(quarry_pool_t *pool) {
    int i = 0;
    while (made[i].pool != pool) i++;
    quarry_pool_destroy(pool);
    quarry_heap_destroy(made[i].heap);
    made[i].pool = NULL;
}
POOL_KIND(heap, .create = heap_create, .destroy = heap_destroy)
