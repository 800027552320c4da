// SPDX-License-Identifier: MIT
// destroyed.c: the operations of a destroyed pool, which all end the process. Its record keeps them until it is reused.
#include "pool/pool.h"

_Noreturn static void destroyed_fatal(const quarry_pool_t *pool) { qy_fatal(QY_FAULT_DEAD_POOL, pool, NULL); }

static void *destroyed_alloc(quarry_pool_t *pool, size_t size, size_t alignment, unsigned flags) {
    (void)size, (void)alignment, (void)flags;
    destroyed_fatal(pool);
}
static void *destroyed_resize(
    quarry_pool_t *pool, void *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags) {
    (void)ptr, (void)old_size, (void)size, (void)alignment, (void)flags;
    destroyed_fatal(pool);
}
static void destroyed_free(quarry_pool_t *pool, void *ptr, size_t size) {
    (void)ptr, (void)size;
    destroyed_fatal(pool);
}
static size_t destroyed_usable(quarry_pool_t *pool, const void *ptr) {
    (void)ptr;
    destroyed_fatal(pool);
}

const quarry_pool_ops_t qy_destroyed_ops = {
    .kind = "destroyed",
    .alloc = destroyed_alloc,
    .resize = destroyed_resize,
    .free = destroyed_free,
    .usable = destroyed_usable,
};
