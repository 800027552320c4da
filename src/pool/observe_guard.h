// SPDX-License-Identifier: MIT
// observe_guard.h: the operations of observe.h in mode GUARD without fences, log or recorder, the mode that most
// checked programs have: each step that the other modes take one by one, in one pass under the observer's lock.
#ifndef QY_POOL_OBSERVE_GUARD_H
#define QY_POOL_OBSERVE_GUARD_H

#include "pool/node.h"
#include "stacks/stack.h"

QY_INLINE bool qy_only_guards(const quarry_pool_t *pool) {
    return (pool->mode & (QY_MODE_GUARD | QY_MODE_FENCE | QY_MODE_COUNTED)) == QY_MODE_GUARD;
}

void *qy_guarded_alloc(quarry_pool_t *pool, const qy_stack_regs_t *caller, uint64_t group, size_t size,
    size_t alignment, unsigned flags);
// The same in memory of qy_zones_bytes (zones.h) at the alignment that these have.
void *qy_guarded_begin(quarry_pool_t *pool, const qy_stack_regs_t *caller, uint64_t group, void *raw, size_t size,
    size_t alignment, unsigned flags);
// Returned, from both: the blocks that quarantine has no room for any more, for qy_observe_leave. Mostly NULL.
qy_block_node_t *qy_guarded_free(quarry_pool_t *pool, const qy_stack_regs_t *caller, void *ptr);
// Of a kind without raw_free.
qy_block_node_t *qy_guarded_end(quarry_pool_t *pool, const qy_stack_regs_t *caller, uint64_t first, uint64_t last);

#endif
