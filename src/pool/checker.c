// SPDX-License-Identifier: MIT
// checker.c: see checker.h. libquarry-check is preloaded, so its table is there from the start or never.
#include "pool/checker.h"

#include <stdatomic.h>

#include "base/compiler.h"
#include "os/loaded.h"

extern const quarry_check_pool_t quarry_check_pool_v1 __attribute__((weak));

static const quarry_check_pool_t no_checker;
_Atomic(const quarry_check_pool_t *) qy_checker_table;  // NULL: not looked for yet

static QY_COLD const quarry_check_pool_t *checker_find(void) {
    const quarry_check_pool_t *t = &quarry_check_pool_v1;
    if (!t) t = qy_os_symbol_of("libquarry-check", QUARRY_CHECK_POOL_TABLE);
    if (!t || t->bytes < sizeof *t) t = &no_checker;
    atomic_store_explicit(&qy_checker_table, t, memory_order_release);
    if (t->bytes) qy_pool_meta_tell();
    return t;
}

const quarry_check_pool_t *qy_checker(void) {
    const quarry_check_pool_t *t = atomic_load_explicit(&qy_checker_table, memory_order_acquire);
    if (QY_UNLIKELY(!t)) t = checker_find();
    return t->bytes ? t : NULL;
}

// ---- blocks -----------------------------------------------------------------------------------------------------

void qy_checker_open(quarry_pool_t *pool) {
    const quarry_check_pool_t *t = qy_checker();
    if (!t) return;
    quarry_check_pool_ends_t ends = pool->ops->capabilities & QUARRY_POOL_PERSISTENT ? QUARRY_CHECK_POOL_LASTING
                                    : pool->ops->capabilities & QUARRY_POOL_FRAMES   ? QUARRY_CHECK_POOL_FRAMES
                                                                                     : QUARRY_CHECK_POOL_EACH;
    pool->info->checked = t->opened(pool->ops->kind, pool->info->name, ends);
}

void qy_checker_close(quarry_pool_t *pool) {
    if (pool->info->checked) qy_checker()->closed(pool->info->checked);
    pool->info->checked = 0;
}

void qy_checker_began(
    const quarry_pool_t *pool, const void *block, size_t size, const void *memory, size_t bytes, uint32_t alloc_stack) {
    if (!pool->info->checked) return;
    qy_checker()->began(&(quarry_check_pool_block_t){.pool = pool->info->checked,
        .alloc_stack = alloc_stack,
        .block = (uintptr_t)block,
        .size = size,
        .memory = (uintptr_t)memory,
        .bytes = bytes});
}

void qy_checker_held(const quarry_pool_t *pool, const void *memory) {
    if (pool->info->checked) qy_checker()->held((uintptr_t)memory);
}
void qy_checker_ended(const quarry_pool_t *pool, const void *memory, uint32_t free_stack) {
    if (pool->info->checked) qy_checker()->ended((uintptr_t)memory, free_stack);
}
void qy_checker_gone(const quarry_pool_t *pool, const void *memory) {
    if (pool->info->checked) qy_checker()->gone((uintptr_t)memory);
}
