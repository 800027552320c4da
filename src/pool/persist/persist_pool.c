// SPDX-License-Identifier: MIT
// persist_pool.c: a persistent pool behind the common interface.
//
// Here misuse ends the process, as with every pool; refused memory and a damaged file give NULL.
#include <errno.h>
#include <string.h>

#include "base/num.h"
#include "pool/persist.h"
#include "pool/trace.h"

static quarry_persist_t *store_of(quarry_pool_t *pool) { return (quarry_persist_t *)pool; }

quarry_pool_t *quarry_persist_pool(quarry_persist_t *s) { return &s->pool; }

static void *refused(quarry_pool_t *pool, size_t size) {
    int saved = errno;
    if (pool->info->flags & QUARRY_POOL_ABORT) return qy_pool_no_memory(pool, size);
    errno = saved;
    return NULL;
}

// Alignments above 16 have no form of their own in persist.h: a transaction of one step.
static uint64_t alloc_aligned(
    quarry_persist_t *s, const qy_stack_regs_t *caller, size_t size, size_t alignment, unsigned flags) {
    bool inside = quarry_persist_begin(s) != 0;
    if (inside && errno != EBUSY) return 0;
    qy_lock_take(&s->step);
    uint32_t records = s->records;
    uint64_t at =
        qy_persist_room(s, QY_PERSIST_OP_WORDS) ? qy_persist_take(s, size, alignment, flags & QUARRY_POOL_ZERO) : 0;
    int saved = errno;
    if (!at) qy_persist_rollback(s, records);
    else qy_persist_count(s, QY_COUNT_ALLOC, size);
    if (at && QY_UNLIKELY(s->pool.mode))
        qy_persist_trace_alloc(s, caller, at, size, alignment, flags & QUARRY_POOL_ZERO);
    qy_lock_drop(&s->step);
    if (!inside && quarry_persist_commit(s)) at = 0;
    errno = saved;
    return at;
}

static void *alloc_from(
    quarry_pool_t *pool, const qy_stack_regs_t *caller, size_t size, size_t alignment, unsigned flags) {
    quarry_persist_t *s = store_of(pool);
    if (!qy_pool_sane(pool, size, alignment)) return qy_pool_refuse(pool, size, alignment);
    int saved = errno;
    uint64_t at = alignment <= 16 ? qy_persist_make(s, caller, NULL, size, flags)
                                  : alloc_aligned(s, caller, size, alignment, flags);
    if (!at) return refused(pool, size);
    errno = saved;
    return s->base + at;
}

static void *pool_alloc(quarry_pool_t *pool, size_t size, size_t alignment, unsigned flags) {
    return alloc_from(pool, &QY_STACK_CALLER(), size, alignment, flags);
}

// The place of a block that must be one. Anything else is misuse, told as precisely as its header allows. A checker is
// told of what `function` was given, and the program goes on: then it is 0.
static uint64_t persist_pool_place_of(
    quarry_persist_t *s, const qy_stack_regs_t *caller, const char *function, const void *ptr) {
    uint64_t at = quarry_persist_ptr(s, ptr), bytes;
    bool within = at && at < qy_persist_end(s);
    if (!within && !s->watch) qy_fatal(QY_FAULT_INVALID_FREE, ptr, "not in this persistent pool");
    qy_persist_enter(s);
    int saved = errno, error = EINVAL;
    if (!within) at = (uint64_t)((uintptr_t)ptr - (uintptr_t)s->base);
    bool used = within && qy_persist_must_be_used(s, at, &bytes);
    if (within) error = errno;
    errno = error;
    if (QY_UNLIKELY(s->watch) && !used && function) qy_persist_watch_wrong(s, at, caller, function);
    errno = saved;
    qy_persist_leave(s);
    if (used) return at;
    if (QY_UNLIKELY(s->watch)) return 0;
    if (error == EALREADY) qy_fatal(QY_FAULT_DOUBLE_FREE, ptr, "%z byte%S of a persistent pool", (size_t)bytes - 8);
    qy_fatal(QY_FAULT_DAMAGED_POOL, ptr, "no block begins here, or its header was overwritten");
}

static void pool_free(quarry_pool_t *pool, void *ptr, size_t size) {
    quarry_persist_t *s = store_of(pool);
    (void)size;
    int saved = errno;
    const qy_stack_regs_t caller = QY_STACK_CALLER();
    uint64_t at = persist_pool_place_of(s, &caller, "free", ptr);
    // A file that cannot be changed (a reader, a child) keeps its block; damage around it is left for check to name.
    if (at) qy_persist_unmake(s, &caller, NULL, at);
    errno = saved;
}

static size_t pool_usable(quarry_pool_t *pool, const void *ptr) {
    quarry_persist_t *s = store_of(pool);
    uint64_t at = persist_pool_place_of(s, NULL, NULL, ptr);
    return at ? quarry_persist_size(s, at) : 0;
}

static void *pool_resize(
    quarry_pool_t *pool, void *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags) {
    quarry_persist_t *s = store_of(pool);
    const qy_stack_regs_t caller = QY_STACK_CALLER();
    if (!ptr) return alloc_from(pool, &caller, size, alignment, flags);
    if (!qy_pool_sane(pool, size, alignment)) return qy_pool_refuse(pool, size, alignment);
    if (!qy_persist_may_change(s)) return refused(pool, size);  // also in place, where zeros may have to be stored
    uint64_t at = persist_pool_place_of(s, &caller, "resize", ptr);
    if (!at) return alloc_from(pool, &caller, size, alignment, flags);
    size_t usable = quarry_persist_size(s, at),
           kept = old_size == QUARRY_SIZE_UNKNOWN ? usable : qy_min(old_size, usable);
    // A watched block always moves, as those of other checked pools.
    if (!s->watch && ((uintptr_t)ptr & (alignment - 1)) == 0 && size <= usable && size >= usable / 2) {
        if ((flags & QUARRY_POOL_ZERO) && size > kept) qy_persist_clear(s, at + kept, size - kept);
        if (QY_UNLIKELY(pool->mode & QY_MODE_COUNTED)) {
            qy_count(pool, QY_COUNT_RESIZE, size);
            qy_pool_trace_resized(pool, ptr, size, ptr);
        }
        return ptr;
    }
    char *to = alloc_from(pool, &caller, size, alignment, 0);
    if (!to) return NULL;
    memcpy(to, ptr, qy_min(kept, size));
    if ((flags & QUARRY_POOL_ZERO) && size > kept)
        qy_persist_clear(s, quarry_persist_ptr(s, to) + kept, size - kept);
    int saved = errno;
    qy_persist_unmake(s, &caller, NULL, at);
    errno = saved;
    return to;
}

static const char *pool_check(quarry_pool_t *pool) {
    return quarry_persist_check(store_of(pool)) ? quarry_persist_error(NULL) : NULL;
}

static void pool_stats(quarry_pool_t *pool, quarry_pool_stats_t *stats) {
    quarry_persist_t *s = store_of(pool);
    // Its record outlives its mapping for a moment, and the log still asks.
    if (s->words) stats->used_bytes = __atomic_load_n(&s->words->used, __ATOMIC_RELAXED);
}

static void pool_destroy(quarry_pool_t *pool) { quarry_persist_close(store_of(pool)); }

// With the lock of all others, which stays as it is where a transaction is open (this thread's own too) or a walk:
// these hold it
// while they run the user's code, which may wait for what the forking thread has frozen already. Nothing changes
// without `step`.
static void persist_pool_freeze(quarry_persist_t *s) {
    qy_lock_freeze_unless_out(&s->lock);
    qy_lock_fork(&s->step, 0);
}

static void pool_fork(quarry_pool_t *pool, int phase) {
    quarry_persist_t *s = store_of(pool);
    if (phase == 0) {
        persist_pool_freeze(s);
        return;
    }
    if (phase == 1) {
        qy_lock_fork(&s->step, 1);
        if (qy_lock_is_frozen(&s->lock)) qy_lock_thaw(&s->lock);
        return;
    }
    // The parent goes on with the file. Our stores must not reach it, nor our descriptor keep its lock.
    s->foreign = true;
    s->records = s->frees = 0;
    s->ntraced = 0;
    atomic_store_explicit(&s->tx_owner, 0, memory_order_relaxed);
    if (!s->private_map) qy_os_map_read_only(s->base, s->mapped);
    if (s->lock_fd >= 0) qy_os_close(s->lock_fd);
    s->lock_fd = -1;
    qy_lock_fork(&s->step, 2);
    qy_lock_reset(&s->lock);
}

// No raw_alloc: not observed. A checker watches it in its own way (persist_watch.c).
const quarry_pool_ops_t qy_persist_ops = {
    .kind = "persist",
    .capabilities =
        QUARRY_POOL_FREES | QUARRY_POOL_SIZES | QUARRY_POOL_ANY_FREE | QUARRY_POOL_SHARED | QUARRY_POOL_PERSISTENT,
    .max_alignment = (size_t)2 << 20,
    .alloc = pool_alloc,
    .resize = pool_resize,
    .free = pool_free,
    .usable = pool_usable,
    .check = pool_check,
    .stats = pool_stats,
    .destroy = pool_destroy,
    .fork = pool_fork,
};
