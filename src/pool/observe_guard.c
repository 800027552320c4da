// SPDX-License-Identifier: MIT
// observe_guard.c: see observe_guard.h.
#include "pool/observe_guard.h"

#include "pool/node.h"
#include "pool/origin.h"
#include "pool/zones.h"

static QY_COLD void *guard_no_node(quarry_pool_t *pool, unsigned char *raw, size_t raw_bytes, size_t size) {
    qy_fill_block(raw, raw_bytes, QY_DEAD_BYTE);
    if (pool->ops->raw_free) pool->ops->raw_free(pool, raw, raw_bytes);
    return qy_pool_no_memory(pool, size);
}

static QY_COLD void *guard_tell(const quarry_pool_t *pool, const unsigned char *raw, size_t raw_bytes, unsigned char *p,
    size_t size, uint32_t born) {
    qy_checker_began(pool, p, size, raw, raw_bytes, born);
    return p;
}

QY_INLINE void *guarded_begin(quarry_pool_t *pool, const qy_stack_regs_t *caller, uint64_t group,
    unsigned char *raw, size_t raw_bytes, size_t size, size_t alignment, unsigned flags) {
    unsigned char *p = raw + qy_zone_left(alignment);
    qy_zones_begin(raw, p, size, raw_bytes, flags & QUARRY_POOL_ZERO);
    uint32_t born = qy_origin(caller);
    struct qy_observer *o = pool->info->observer;
    qy_lock_take(&o->lock);
    qy_block_node_t *n = qy_node_take(o);
    if (QY_LIKELY(n != NULL)) {
        qy_assert(!o->live.newest || o->live.newest->group <= group);
        n->ptr = qy_hide_pointer(p);
        n->raw = qy_hide_pointer(raw);
        n->size = size;
        n->alignment = alignment;
        n->raw_bytes = raw_bytes;
        n->group = group;
        n->born = born;
        n->died = 0;
        n->freed = n->fenced = false;
        qy_node_enter(o, n);
        qy_live_push(o, n, size);
    }
    qy_lock_drop(&o->lock);
    if (QY_UNLIKELY(!n)) return guard_no_node(pool, raw, raw_bytes, size);
    if (QY_UNLIKELY(pool->info->checked)) return guard_tell(pool, raw, raw_bytes, p, size, born);
    return p;
}

void *qy_guarded_begin(quarry_pool_t *pool, const qy_stack_regs_t *caller, uint64_t group, void *raw, size_t size,
    size_t alignment, unsigned flags) {
    return guarded_begin(pool, caller, group, raw, qy_zones_bytes(size, alignment), size, alignment, flags);
}

void *qy_guarded_alloc(quarry_pool_t *pool, const qy_stack_regs_t *caller, uint64_t group, size_t size,
    size_t alignment, unsigned flags) {
    if (QY_UNLIKELY(!qy_pool_sane(pool, size, alignment))) return qy_pool_refuse(pool, size, alignment);
    size_t left = qy_zone_left(alignment), raw_bytes = qy_zones_bytes(size, alignment);
    if (QY_UNLIKELY(size > QUARRY_POOL_MAX - 4 * left)) return qy_pool_no_memory(pool, size);
    void *raw = pool->ops->raw_alloc(pool, raw_bytes, left);
    if (QY_UNLIKELY(!raw)) return qy_pool_no_memory(pool, size);
    return guarded_begin(pool, caller, group, raw, raw_bytes, size, alignment, flags);
}

// It is on no list.
QY_INLINE void guard_dies(quarry_pool_t *pool, struct qy_observer *o, qy_block_node_t *n, uint32_t died) {
    n->died = died;
    qy_zones_end(pool, n);
    n->freed = true;
    qy_quarantine_push(o, n, n->raw_bytes + sizeof *n);
}

static QY_COLD void guard_no_block(quarry_pool_t *pool, const qy_stack_regs_t *caller, void *ptr) {
    qy_found_pointer(pool, caller, "free", ptr);
}

qy_block_node_t *qy_guarded_free(quarry_pool_t *pool, const qy_stack_regs_t *caller, void *ptr) {
    struct qy_observer *o = pool->info->observer;
    uint32_t died = qy_origin(caller);
    qy_lock_take(&o->lock);
    qy_block_node_t *n = qy_node_find(o, ptr, false), *leave = NULL;
    if (QY_LIKELY(n != NULL)) {
        qy_live_remove(o, n);
        guard_dies(pool, o, n, died);
        leave = qy_node_too_many(o);
    }
    qy_lock_drop(&o->lock);
    if (QY_UNLIKELY(!n)) guard_no_block(pool, caller, ptr);
    return leave;
}

qy_block_node_t *qy_guarded_end(quarry_pool_t *pool, const qy_stack_regs_t *caller, uint64_t first, uint64_t last) {
    struct qy_observer *o = pool->info->observer;
    uint32_t died = caller ? qy_origin(caller) : 0;
    qy_lock_take(&o->lock);
    qy_block_node_t *n = qy_node_newest_of(o, first, last);
    for (qy_block_node_t *older; n && n->group - first <= last - first; n = older) {
        older = n->older;
        qy_live_remove(o, n);
        guard_dies(pool, o, n, died);
    }
    qy_block_node_t *leave = qy_node_too_many(o);
    qy_lock_drop(&o->lock);
    return leave;
}
