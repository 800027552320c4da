// SPDX-License-Identifier: MIT
// observe.c: see observe.h. Which mode; and the four operations on observed blocks.
#include "pool/observe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "pool/checker.h"
#include "pool/checkers.h"
#include "pool/faults.h"
#include "pool/fence.h"
#include "pool/filling.h"
#include "pool/node.h"
#include "pool/observe_guard.h"
#include "pool/origin.h"
#include "pool/reused.h"
#include "pool/trace.h"
#include "rt/opts.h"

// ---- which mode ---------------------------------------------------------------------------------------

static unsigned mode_of_auto(void) {
    return qy_asan_runs()       ? QY_MODE_PASS
           : qy_valgrind_runs() ? QY_MODE_VALGRIND
           : qy_checker()       ? QY_MODE_GUARD
                                : 0;
}

static unsigned mode_of_conf(void) {
    char word[16];
    if (!qy_opts_str(qy_opts.pools, word, sizeof word) || !strcmp(word, "auto")) return mode_of_auto();
    if (!strcmp(word, "off")) return 0;
    if (!strcmp(word, "guard")) return QY_MODE_GUARD;
    if (!strcmp(word, "fence")) return QY_MODE_GUARD | QY_MODE_FENCE;
    if (!strcmp(word, "pass")) return QY_MODE_PASS;
    static _Atomic bool warned;
    if (!strcmp(word, "poison")) {
        if (qy_asan_runs()) return QY_MODE_ASAN;
        if (!atomic_exchange(&warned, true))
            qy_warn("QUARRY_CONF: pools:poison needs AddressSanitizer in the program; pools:guard instead");
        return QY_MODE_GUARD;
    }
    if (!atomic_exchange(&warned, true))
        qy_warn("QUARRY_CONF: pools:%s is none of auto, off, guard, fence, poison, pass; auto instead", word);
    return mode_of_auto();
}

bool qy_observe_open(quarry_pool_t *pool) {
    unsigned flags = pool->info->flags;
    // Of a kind that cannot be observed, too.
    if (qy_checker()) qy_fatal_watch(qy_found_misuse);
    unsigned mode = flags & QUARRY_POOL_PASS    ? QY_MODE_PASS
                    : flags & QUARRY_POOL_FENCE ? QY_MODE_GUARD | QY_MODE_FENCE
                    : flags & QUARRY_POOL_GUARD ? QY_MODE_GUARD
                                                : mode_of_conf();
    // A kind that cannot be observed, of whose blocks a checker may be told.
    if (!pool->ops->raw_alloc && pool->ops->capabilities & QUARRY_POOL_PERSISTENT && mode & QY_MODE_GUARD)
        qy_checker_open(pool);
    if (!pool->ops->raw_alloc || !mode) return true;
    pool->info->observer = qy_observer_new();
    if (!pool->info->observer) return false;
    pool->mode |= mode;
    if (mode & QY_MODE_GUARD) qy_origin_start();
    if (mode & QY_MODE_GUARD) qy_checker_open(pool);
    if (mode == QY_MODE_VALGRIND) VALGRIND_CREATE_MEMPOOL(pool, QY_REDZONE, 0);
    return true;
}

void qy_observe_fork(quarry_pool_t *pool, int phase) {
    if (pool->info->observer) qy_observer_fork(pool->info->observer, phase);
}

// ---- memory for a block ---------------------------------------------------------------------------------

static bool take_raw(quarry_pool_t *pool, qy_block_node_t *n) {
    void *raw = NULL;
    if (pool->mode & QY_MODE_PASS) {
        n->raw_bytes = qy_max(n->size, 1);
        if (!qy_pool_charge(pool, n->raw_bytes)) return false;
        // As C23 says, malloc aligns a block of up to 8 bytes to 8 only. To ask for more would hide an overflow.
        if (n->alignment <= 8 || (n->alignment <= 16 && n->raw_bytes > 8)) raw = malloc(n->raw_bytes);
        else if (posix_memalign(&raw, n->alignment, n->raw_bytes)) raw = NULL;
        if (!raw) qy_pool_discharge(pool, n->raw_bytes);
        n->raw = qy_hide_pointer(raw);
        n->ptr = n->raw;
        return raw != NULL;
    }
    // Where the kernel has no mapping left, canaries have to do.
    if (pool->mode & QY_MODE_FENCE && qy_fence_take(n)) {
        n->fenced = qy_pool_charge(pool, qy_fence_bytes(n));
        if (!n->fenced) qy_fence_give(n);
        return n->fenced;
    }
    // The right redzone also fills up to the next redzone's alignment.
    n->raw_bytes = qy_zones_bytes(n->size, n->alignment);
    raw = pool->ops->raw_alloc(pool, n->raw_bytes, qy_max(n->alignment, QY_REDZONE));
    if (!raw) return false;
    n->raw = qy_hide_pointer(raw);
    n->ptr = qy_hide_pointer((char *)raw + qy_zone_left(n->alignment));
    return true;
}

static void give_raw_back(quarry_pool_t *pool, qy_block_node_t *n) {
    void *raw = qy_shown_pointer(n->raw);
    if (QY_UNLIKELY(pool->info->checked)) qy_checker_gone(pool, raw);
    if (pool->mode & QY_MODE_PASS) {
        free(raw);
        qy_pool_discharge(pool, n->raw_bytes);
    } else if (n->fenced) {
        qy_fence_give(n);
        qy_pool_discharge(pool, qy_fence_bytes(n));
    } else if (pool->ops->raw_free) {
        if (pool->mode & QY_MODE_POISONED) qy_observe_show(pool, raw, n->raw_bytes);
        pool->ops->raw_free(pool, raw, n->raw_bytes);
    }
}

// ---- redzones ---------------------------------------------------------------------------------------------

QY_INLINE void block_begins(quarry_pool_t *pool, qy_block_node_t *n, bool zero) {
    unsigned char *raw = qy_shown_pointer(n->raw), *p = qy_shown_pointer(n->ptr), *end = raw + n->raw_bytes;
    if (pool->mode & QY_MODE_POISONED) qy_observe_show(pool, raw, n->raw_bytes);
    if (zero) memset(p, 0, n->size);
    if (pool->mode & QY_MODE_PASS) return;
    if (pool->mode & QY_MODE_GUARD) {
        qy_fill(raw, (size_t)(p - raw), QY_CANARY_BYTE);
        qy_fill(p + n->size, (size_t)(end - p) - n->size, QY_CANARY_BYTE);
        if (!zero) qy_fill_block(p, n->size, QY_RAW_BYTE);  // so that use before writing shows
    }
    if (pool->mode & QY_MODE_ASAN) {
        qy_asan_poison(raw, (size_t)(p - raw));
        qy_asan_poison(p + n->size, (size_t)(end - p) - n->size);
    }
    if (pool->mode & QY_MODE_VALGRIND) {
        VALGRIND_MAKE_MEM_NOACCESS(raw, n->raw_bytes);
        if (pool->ops->raw_free) VALGRIND_MALLOCLIKE_BLOCK(p, n->size, QY_REDZONE, zero);
        else VALGRIND_MEMPOOL_ALLOC(pool, p, n->size);
        if (zero) VALGRIND_MAKE_MEM_DEFINED(p, n->size);
    }
}

// Are the canaries on both sides of it what they were?
QY_INLINE bool intact_before(const qy_block_node_t *n) {
    const unsigned char *raw = qy_shown_pointer(n->raw), *p = qy_shown_pointer(n->ptr);
    return qy_is_filled(raw, (size_t)(p - raw), QY_CANARY_BYTE);
}
QY_INLINE bool intact_behind(const qy_block_node_t *n) {
    const unsigned char *p = qy_shown_pointer(n->ptr), *end = (unsigned char *)qy_shown_pointer(n->raw) + n->raw_bytes;
    return qy_is_filled(p + n->size, (size_t)(end - p) - n->size, QY_CANARY_BYTE);
}

// Nobody may touch the block any more, nor what lies beside it.
QY_INLINE void block_ends(quarry_pool_t *pool, qy_block_node_t *n) {
    void *p = qy_shown_pointer(n->ptr);
    if (pool->mode & QY_MODE_GUARD) {
        if (QY_UNLIKELY(!intact_before(n) || !intact_behind(n))) qy_found_canary(pool, n);
        if (n->fenced) qy_fence_hide(n);
        else {
            size_t bytes;
            unsigned char *dead = qy_node_dead(n, &bytes);
            qy_fill_block(dead, bytes, QY_DEAD_BYTE);
        }
    }
    if (QY_UNLIKELY(pool->info->checked)) qy_checker_ended(pool, qy_shown_pointer(n->raw), n->died);
    if (pool->mode & QY_MODE_ASAN) qy_asan_poison(qy_shown_pointer(n->raw), n->raw_bytes);
    if (pool->mode & QY_MODE_VALGRIND) {
        if (pool->ops->raw_free) VALGRIND_FREELIKE_BLOCK(p, QY_REDZONE);
        else VALGRIND_MEMPOOL_FREE(pool, p);
    }
}

// The blocks of the chain leave quarantine: for good.
void qy_observe_leave_all(quarry_pool_t *pool, qy_block_node_t *chain) {
    for (qy_block_node_t *n = chain; n; n = n->older) {
        if (pool->mode & QY_MODE_GUARD && !n->fenced) qy_zones_must_be_dead(pool, n);
        give_raw_back(pool, n);
    }
    qy_observer_spare(pool->info->observer, chain);
}

// The blocks, which have ended, wait until others have ended after them.
static void blocks_wait(quarry_pool_t *pool, qy_block_node_t *chain) {
    qy_observe_leave(pool, qy_observer_quarantine(pool->info->observer, chain));
}

// They end for good at once.
static void blocks_go(quarry_pool_t *pool, qy_block_node_t *chain) {
    for (qy_block_node_t *n = chain; n; n = n->older) give_raw_back(pool, n);
    qy_observer_forget(pool->info->observer, chain);
}

// ---- operations -----------------------------------------------------------------------------------------------

// The recorder is told by who calls.
QY_INLINE void *new_block(quarry_pool_t *pool, const qy_stack_regs_t *caller, uint64_t group, size_t size,
    size_t alignment, unsigned flags) {
    if (!qy_pool_sane(pool, size, alignment)) return qy_pool_refuse(pool, size, alignment);
    if (size > QUARRY_POOL_MAX - 4 * qy_max(alignment, QY_REDZONE)) return qy_pool_no_memory(pool, size);
    qy_block_node_t n = {.size = size, .alignment = alignment, .group = group};
    if (!take_raw(pool, &n)) return qy_pool_no_memory(pool, size);
    if (pool->mode & QY_MODE_GUARD) n.born = qy_origin(caller);
    block_begins(pool, &n, flags & QUARRY_POOL_ZERO);
    if (QY_LIKELY(qy_observer_add(pool->info->observer, &n))) {
        void *p = qy_shown_pointer(n.ptr);
        if (QY_UNLIKELY(pool->info->checked))
            qy_checker_began(pool, p, size, qy_shown_pointer(n.raw), n.raw_bytes, n.born);
        return p;
    }
    block_ends(pool, &n);
    give_raw_back(pool, &n);
    return qy_pool_no_memory(pool, size);
}

void *qy_observe_alloc(quarry_pool_t *pool, const qy_stack_regs_t *caller, uint64_t group, size_t size,
    size_t alignment, unsigned flags) {
    if (QY_LIKELY(qy_only_guards(pool))) return qy_guarded_alloc(pool, caller, group, size, alignment, flags);
    void *p = new_block(pool, caller, group, size, alignment, flags);
    if (p && pool->mode & QY_MODE_COUNTED) qy_count(pool, QY_COUNT_ALLOC, size);
    return pool->mode & QY_MODE_RECORDED ? qy_pool_trace_alloc(pool, size, alignment, p) : p;
}

void qy_observe_free(quarry_pool_t *pool, const qy_stack_regs_t *caller, void *ptr) {
    if (!ptr) return;
    bool frees = pool->ops->capabilities & QUARRY_POOL_FREES;
    if (QY_LIKELY(qy_only_guards(pool) && frees)) {
        qy_observe_leave(pool, qy_guarded_free(pool, caller, ptr));
        return;
    }
    int saved = errno;
    struct qy_observer *o = pool->info->observer;
    if (!frees) {  // does nothing, but to blocks only
        qy_block_node_t found;
        if (qy_observer_explain(o, ptr, &found) != QY_IS_BLOCK) qy_found_pointer(pool, caller, "free", ptr);
        return;
    }
    qy_block_node_t *n = qy_observer_take(o, ptr, false);
    if (QY_UNLIKELY(!n)) {
        qy_found_pointer(pool, caller, "free", ptr);
        return;
    }
    if (pool->mode & QY_MODE_COUNTED) qy_count(pool, QY_COUNT_FREE, 0);
    if (pool->mode & QY_MODE_GUARD) n->died = qy_origin(caller);
    if (pool->mode & QY_MODE_RECORDED) qy_pool_trace_free(pool, ptr);
    block_ends(pool, n);
    if (pool->mode & QY_MODE_PASS) blocks_go(pool, n);
    else blocks_wait(pool, n);
    errno = saved;
}

void *qy_observe_resize(quarry_pool_t *pool, const qy_stack_regs_t *caller, uint64_t group, void *ptr, size_t size,
    size_t alignment, unsigned flags) {
    if (!ptr) return qy_observe_alloc(pool, caller, group, size, alignment, flags);
    qy_block_node_t old;
    if (qy_observer_explain(pool->info->observer, ptr, &old) != QY_IS_BLOCK) {
        qy_found_pointer(pool, caller, "resize", ptr);
        return qy_observe_alloc(pool, caller, group, size, alignment, flags);
    }
    if ((pool->ops->capabilities & QUARRY_POOL_FRAMES) && old.group != group) qy_found_frame(pool, caller, &old, group);
    void *p = new_block(pool, caller, group, size, alignment, flags);
    if (!p) return NULL;
    memcpy(p, ptr, qy_min(old.size, size));
    qy_block_node_t *n = qy_observer_take(pool->info->observer, ptr, true);
    if (QY_UNLIKELY(!n)) {  // another thread was quicker
        qy_found_pointer(pool, caller, "resize", ptr);
        return p;
    }
    if (pool->mode & QY_MODE_COUNTED) qy_count(pool, QY_COUNT_RESIZE, size);
    qy_pool_trace_resized(pool, ptr, size, p);
    if (pool->mode & QY_MODE_GUARD) n->died = qy_origin(caller);
    block_ends(pool, n);
    // In the middle of a frame that goes on it would not be the next to be given out (qy_observe_reused).
    bool waits = n->fenced || (pool->ops->raw_free && !(pool->mode & QY_MODE_PASS));
    if (waits) blocks_wait(pool, n);
    else blocks_go(pool, n);
    return p;
}

// Some may have no fence, since the kernel had no mapping left.
static void fenced_blocks_end(quarry_pool_t *pool, qy_block_node_t *chain) {
    for (qy_block_node_t *next; chain; chain = next) {
        next = chain->older;
        chain->older = NULL;
        (chain->fenced ? blocks_wait : blocks_go)(pool, chain);
    }
}

void qy_observe_end(quarry_pool_t *pool, const qy_stack_regs_t *caller, uint64_t first, uint64_t last) {
    if (!pool->info->observer) return;
    if (QY_LIKELY(qy_only_guards(pool) && !pool->ops->raw_free)) {
        qy_observe_leave(pool, qy_guarded_end(pool, caller, first, last));
        return;
    }
    int saved = errno;
    qy_block_node_t *chain = qy_observer_take_groups(pool->info->observer, first, last);
    uint32_t died = chain && caller && (pool->mode & QY_MODE_GUARD) ? qy_origin(caller) : 0;
    for (qy_block_node_t *n = chain; n; n = n->older) {
        n->died = died;
        block_ends(pool, n);
    }
    if (pool->mode & QY_MODE_FENCE) fenced_blocks_end(pool, chain);
    else if (chain) (qy_lie_until_reused(pool) ? blocks_wait : blocks_go)(pool, chain);
    errno = saved;
}

void qy_observe_reused_all(quarry_pool_t *pool, const void *base, size_t bytes) {
    uintptr_t from = (uintptr_t)base;
    if (qy_lie_until_reused(pool)) qy_observe_leave(pool, qy_observer_within(pool->info->observer, from, from + bytes));
}

void qy_observe_close(quarry_pool_t *pool) {
    struct qy_observer *o = pool->info->observer;
    qy_observe_end(pool, NULL, 0, UINT64_MAX);
    if (o) qy_observe_leave(pool, qy_observer_release_quarantine(o));
    qy_checker_close(pool);
}

void qy_observe_drop(quarry_pool_t *pool) {
    struct qy_observer *o = pool->info->observer;
    qy_observe_close(pool);
    if (!o) return;
    if (pool->mode & QY_MODE_VALGRIND) VALGRIND_DESTROY_MEMPOOL(pool);
    pool->info->observer = NULL;
    qy_observer_delete(o);
}

void qy_observe_hide(quarry_pool_t *pool, void *base, size_t bytes) {
    if (pool->mode & QY_MODE_ASAN) qy_asan_poison(base, bytes);
    if (pool->mode & QY_MODE_VALGRIND) VALGRIND_MAKE_MEM_NOACCESS(base, bytes);
}

void qy_observe_show(quarry_pool_t *pool, void *base, size_t bytes) {
    if (pool->mode & QY_MODE_ASAN) qy_asan_unpoison(base, bytes);
    if (pool->mode & QY_MODE_VALGRIND) VALGRIND_MAKE_MEM_UNDEFINED(base, bytes);
}

// ---- what may be asked --------------------------------------------------------------------------------------------

size_t qy_observe_usable(quarry_pool_t *pool, const void *ptr) {
    qy_block_node_t found;
    return qy_observer_explain(pool->info->observer, ptr, &found) == QY_IS_BLOCK ? found.size : 0;
}

uint64_t qy_observe_live(quarry_pool_t *pool) { return qy_observer_live(pool->info->observer); }

static bool intact(const qy_block_node_t *n, void *arg) {
    const quarry_pool_t *pool = arg;
    return !(pool->mode & QY_MODE_GUARD) || (intact_before(n) && intact_behind(n));
}

const char *qy_observe_check(quarry_pool_t *pool) {
    return !pool->info->observer || qy_observer_all(pool->info->observer, intact, pool)
               ? NULL
               : "a block's canary was overwritten";
}

void qy_observe_stats(quarry_pool_t *pool, quarry_pool_stats_t *stats) {
    if (!pool->info->observer) return;
    qy_observer_stats(pool->info->observer, stats);
    if (!(pool->ops->capabilities & QUARRY_POOL_FREES)) stats->frees = 0;
}
