// SPDX-License-Identifier: MIT
// checker.h: the table of libquarry-check (rt/check_pool.h), if the process has one.
#ifndef QY_POOL_CHECKER_H
#define QY_POOL_CHECKER_H

#include "pool/pool.h"
#include "rt/check_pool.h"

// NULL: the process is not checked. Looked for when the first pool is made; constant afterwards.
const quarry_check_pool_t *qy_checker(void);
// The same for who may not look: NULL, too, if nobody did.
extern QY_HIDDEN _Atomic(const quarry_check_pool_t *) qy_checker_table;
QY_INLINE const quarry_check_pool_t *qy_checker_if_known(void) {
    const quarry_check_pool_t *t = atomic_load_explicit(&qy_checker_table, memory_order_acquire);
    return t && t->bytes ? t : NULL;
}

// The checker is told of the pool, and from now on of its blocks. Nothing without a checker.
QY_COLD void qy_checker_open(quarry_pool_t *pool);
QY_COLD void qy_checker_close(quarry_pool_t *pool);
// What rt/check_pool.h says of these names. Nothing if the checker does not know the pool.
QY_COLD void qy_checker_began(
    const quarry_pool_t *pool, const void *block, size_t size, const void *memory, size_t bytes, uint32_t alloc_stack);
QY_COLD void qy_checker_held(const quarry_pool_t *pool, const void *memory);
QY_COLD void qy_checker_ended(const quarry_pool_t *pool, const void *memory, uint32_t free_stack);
QY_COLD void qy_checker_gone(const quarry_pool_t *pool, const void *memory);

#endif
