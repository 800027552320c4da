// SPDX-License-Identifier: MIT
// dead.c: the operations of a destroyed pool, which all end the process. Its record keeps them until it is reused.
#include "pool/pool.h"

_Noreturn static void dead(const quarry_pool_t *pool) { qy_fatal(QY_FAULT_DEAD_POOL, pool, NULL); }

static void *dead_alloc(quarry_pool_t *pool, size_t size, size_t alignment, unsigned flags) {
    (void)size, (void)alignment, (void)flags;
    dead(pool);
}
static void *dead_resize(quarry_pool_t *pool, void *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags) {
    (void)ptr, (void)old_size, (void)size, (void)alignment, (void)flags;
    dead(pool);
}
static void dead_free(quarry_pool_t *pool, void *ptr, size_t size) {
    (void)ptr, (void)size;
    dead(pool);
}
static size_t dead_usable(quarry_pool_t *pool, const void *ptr) {
    (void)ptr;
    dead(pool);
}

const quarry_pool_ops_t qy_dead_ops = {
    .kind = "destroyed",
    .alloc = dead_alloc,
    .resize = dead_resize,
    .free = dead_free,
    .usable = dead_usable,
};
