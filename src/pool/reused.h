// SPDX-License-Identifier: MIT
// reused.h: what ended blocks of a kind without raw_free lie in is about to be given out again, or was just.
#ifndef QY_POOL_REUSED_H
#define QY_POOL_REUSED_H

#include "pool/node.h"
#include "pool/zones.h"

// In a kind that takes memory back when frames end, ended blocks lie where they are until it is given out again.
QY_INLINE bool qy_lie_until_reused(const quarry_pool_t *pool) {
    return (pool->mode & (QY_MODE_GUARD | QY_MODE_FENCE)) == QY_MODE_GUARD && !pool->ops->raw_free &&
           pool->info->observer;
}

// The newest in quarantine leave it, as long as `goes` says so of their memory. What was written to them meanwhile is
// found now.
typedef bool qy_reused_t(uintptr_t raw, const void *arg);
QY_INLINE void qy_observe_reused(quarry_pool_t *pool, qy_reused_t *goes, const void *arg) {
    if (QY_UNLIKELY(!qy_lie_until_reused(pool))) return;
    struct qy_observer *o = pool->info->observer;
    qy_lock_take(&o->lock);
    for (qy_block_node_t *n; (n = o->quarantine.newest) && goes((uintptr_t)qy_shown_pointer(n->raw), arg);) {
        qy_zones_must_be_dead(pool, n);
        if (QY_UNLIKELY(pool->info->checked)) qy_checker_gone(pool, qy_shown_pointer(n->raw));
        o->spares = qy_node_leaves(o, n, o->spares);
    }
    qy_lock_drop(&o->lock);
}

#endif
