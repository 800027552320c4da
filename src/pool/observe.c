// SPDX-License-Identifier: MIT
// observe.c: see observe.h. Which mode; and the four operations on observed blocks.
#include "pool/observe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "pool/checkers.h"
#include "pool/fence.h"
#include "pool/node.h"
#include "pool/trace.h"
#include "rt/opts.h"

// ---- which mode ---------------------------------------------------------------------------------------

static unsigned mode_of_conf(void) {
    char word[16];
    if (!qy_opts_str(qy_opts.pools, word, sizeof word) || !strcmp(word, "auto"))
        return qy_asan_runs() ? QY_MODE_PASS : qy_valgrind_runs() ? QY_MODE_VALGRIND
                                                                  : 0;
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
    return qy_asan_runs() ? QY_MODE_PASS : 0;
}

bool qy_observe_open(quarry_pool_t *pool) {
    unsigned flags = pool->info->flags;
    if (!pool->ops->raw_alloc) return true;  // the kind cannot be observed
    unsigned mode = flags & QUARRY_POOL_PASS    ? QY_MODE_PASS
                    : flags & QUARRY_POOL_FENCE ? QY_MODE_GUARD | QY_MODE_FENCE
                    : flags & QUARRY_POOL_GUARD ? QY_MODE_GUARD
                                                : mode_of_conf();
    if (!mode) return true;
    pool->info->observer = qy_observer_new();
    if (!pool->info->observer) return false;
    pool->mode |= mode;
    if (mode == QY_MODE_VALGRIND) VALGRIND_CREATE_MEMPOOL(pool, QY_REDZONE, 0);
    return true;
}

void qy_observe_fork(quarry_pool_t *pool, int phase) {
    if (pool->info->observer) qy_observer_fork(pool->info->observer, phase);
}

// ---- memory for a block ---------------------------------------------------------------------------------

static size_t left_zone(const qy_block_node_t *n) { return qy_max(QY_REDZONE, n->alignment); }

static bool take_raw(quarry_pool_t *pool, qy_block_node_t *n) {
    void *raw = NULL;
    if (pool->mode & QY_MODE_PASS) {
        n->raw_bytes = qy_max(n->size, 1);
        if (!qy_pool_charge(pool, n->raw_bytes)) return false;
        if (n->alignment <= 16) raw = malloc(n->raw_bytes);
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
    n->raw_bytes = left_zone(n) + qy_round_up(n->size, QY_REDZONE) + QY_REDZONE;
    raw = pool->ops->raw_alloc(pool, n->raw_bytes, qy_max(n->alignment, QY_REDZONE));
    if (!raw) return false;
    n->raw = qy_hide_pointer(raw);
    n->ptr = qy_hide_pointer((char *)raw + left_zone(n));
    return true;
}

static void give_raw_back(quarry_pool_t *pool, qy_block_node_t *n) {
    void *raw = qy_shown_pointer(n->raw);
    if (pool->mode & QY_MODE_PASS) {
        free(raw);
        qy_pool_discharge(pool, n->raw_bytes);
    } else if (n->fenced) {
        qy_fence_give(n);
        qy_pool_discharge(pool, qy_fence_bytes(n));
    } else if (pool->ops->raw_free) {
        qy_observe_show(pool, raw, n->raw_bytes);
        pool->ops->raw_free(pool, raw, n->raw_bytes);
    }
}

// ---- redzones ---------------------------------------------------------------------------------------------

static void fill(unsigned char *from, const unsigned char *to, unsigned char byte) {
    memset(from, byte, (size_t)(to - from));
}

static bool filled(const unsigned char *from, const unsigned char *to, unsigned char byte) {
    while (from < to && *from == byte) from++;
    return from == to;
}

static void block_begins(quarry_pool_t *pool, qy_block_node_t *n, bool zero) {
    unsigned char *raw = qy_shown_pointer(n->raw), *p = qy_shown_pointer(n->ptr), *end = raw + n->raw_bytes;
    qy_observe_show(pool, raw, n->raw_bytes);
    if (zero) memset(p, 0, n->size);
    if (pool->mode & QY_MODE_PASS) return;
    if (pool->mode & QY_MODE_GUARD) {
        fill(raw, p, QY_CANARY_BYTE);
        fill(p + n->size, end, QY_CANARY_BYTE);
        if (!zero) memset(p, QY_RAW_BYTE, n->size);  // so that use before writing shows
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

static void must_be_intact(quarry_pool_t *pool, const qy_block_node_t *n) {
    if (!(pool->mode & QY_MODE_GUARD)) return;
    const unsigned char *raw = qy_shown_pointer(n->raw), *p = qy_shown_pointer(n->ptr), *end = raw + n->raw_bytes;
    if (filled(raw, p, QY_CANARY_BYTE) && filled(p + n->size, end, QY_CANARY_BYTE)) return;
    qy_node_print_traces(n);
    qy_fatal(QY_FAULT_CANARY, p, "block of %z bytes in %s \"%s\" was written %s", n->size, pool->ops->kind,
        pool->info->name, filled(raw, p, QY_CANARY_BYTE) ? "behind its end" : "before its start");
}

// Nobody may touch the block any more.
static void block_ends(quarry_pool_t *pool, qy_block_node_t *n) {
    void *p = qy_shown_pointer(n->ptr);
    must_be_intact(pool, n);
    if (n->fenced) qy_fence_hide(n);
    else if (pool->mode & QY_MODE_GUARD) memset(p, QY_DEAD_BYTE, n->size);
    if (pool->mode & QY_MODE_ASAN) qy_asan_poison(qy_shown_pointer(n->raw), n->raw_bytes);
    if (pool->mode & QY_MODE_VALGRIND) {
        if (pool->ops->raw_free) VALGRIND_FREELIKE_BLOCK(p, QY_REDZONE);
        else VALGRIND_MEMPOOL_FREE(pool, p);
    }
}

// The block leaves quarantine: for good.
static void block_leaves(quarry_pool_t *pool, qy_block_node_t *n) {
    if (pool->mode & QY_MODE_GUARD && !n->fenced) {
        const unsigned char *p = qy_shown_pointer(n->ptr);
        if (!filled(p, p + n->size, QY_DEAD_BYTE)) {
            qy_node_print_traces(n);
            qy_fatal(
                QY_FAULT_QUARANTINE, p, "block of %z bytes in %s \"%s\"", n->size, pool->ops->kind, pool->info->name);
        }
        must_be_intact(pool, n);
    }
    give_raw_back(pool, n);
    qy_node_free(n);
}

// The block, which has ended, waits until others have ended after it.
static void block_waits(quarry_pool_t *pool, qy_block_node_t *n) {
    for (qy_block_node_t *out = qy_observer_quarantine(pool->info->observer, n), *next; out; out = next)
        next = out->older, block_leaves(pool, out);
}

// The same, where its memory can wait.
static void block_goes(quarry_pool_t *pool, qy_block_node_t *n) {
    if (n->fenced || (pool->ops->raw_free && !(pool->mode & QY_MODE_PASS))) {
        block_waits(pool, n);
        return;
    }
    give_raw_back(pool, n);
    qy_node_free(n);
}

// ---- operations -----------------------------------------------------------------------------------------------

// The recorder is told by who calls.
static void *new_block(quarry_pool_t *pool, uint64_t group, size_t size, size_t alignment, unsigned flags) {
    if (!qy_pool_sane(pool, size, alignment)) return qy_pool_refuse(pool, size, alignment);
    qy_block_node_t *n = size <= QUARRY_POOL_MAX - 4 * qy_max(alignment, QY_REDZONE) ? qy_node_new() : NULL;
    if (!n) return qy_pool_no_memory(pool, size);
    n->size = size;
    n->alignment = alignment;
    n->group = group;
    if (!take_raw(pool, n)) {
        qy_node_free(n);
        return qy_pool_no_memory(pool, size);
    }
    if (pool->mode & QY_MODE_GUARD) qy_node_trace(n->born);
    block_begins(pool, n, flags & QUARRY_POOL_ZERO);
    void *p = qy_shown_pointer(n->ptr);
    if (!qy_observer_add(pool->info->observer, n)) {
        block_ends(pool, n);
        give_raw_back(pool, n);
        qy_node_free(n);
        return qy_pool_no_memory(pool, size);
    }
    return p;
}

void *qy_observe_alloc(quarry_pool_t *pool, uint64_t group, size_t size, size_t alignment, unsigned flags) {
    return qy_pool_trace_alloc(pool, size, alignment, new_block(pool, group, size, alignment, flags));
}

_Noreturn static void not_a_block(quarry_pool_t *pool, const void *ptr) {
    qy_block_node_t found;
    switch (qy_observer_explain(pool->info->observer, ptr, &found)) {
    case QY_WAS_FREED:
        qy_node_print_traces(&found);
        qy_fatal(
            QY_FAULT_DOUBLE_FREE, ptr, "block of %z bytes in %s \"%s\"", found.size, pool->ops->kind, pool->info->name);
    case QY_IS_INSIDE:
        qy_fatal(QY_FAULT_INTERIOR_FREE, ptr, "block of %z bytes in %s \"%s\"", found.size, pool->ops->kind,
            pool->info->name);
    default:
        qy_fatal(QY_FAULT_INVALID_FREE, ptr, "no block of %s \"%s\"", pool->ops->kind, pool->info->name);
    }
}

void qy_observe_free(quarry_pool_t *pool, void *ptr, size_t size) {
    (void)size;
    if (!ptr) return;
    int saved = errno;
    struct qy_observer *o = pool->info->observer;
    if (!(pool->ops->capabilities & QUARRY_POOL_FREES)) {  // does nothing, but to blocks only
        qy_block_node_t found;
        if (qy_observer_explain(o, ptr, &found) != QY_IS_BLOCK) not_a_block(pool, ptr);
        return;
    }
    qy_block_node_t *n = qy_observer_take(o, ptr);
    if (!n) not_a_block(pool, ptr);
    if (pool->mode & QY_MODE_GUARD) qy_node_trace(n->died);
    qy_pool_trace_free(pool, ptr);
    block_ends(pool, n);
    if (pool->mode & QY_MODE_PASS) block_leaves(pool, n);
    else block_waits(pool, n);
    errno = saved;
}

void *qy_observe_resize(
    quarry_pool_t *pool, uint64_t group, void *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags) {
    (void)old_size;  // the node knows
    if (!ptr) return qy_observe_alloc(pool, group, size, alignment, flags);
    qy_block_node_t old;
    if (qy_observer_explain(pool->info->observer, ptr, &old) != QY_IS_BLOCK) not_a_block(pool, ptr);
    if ((pool->ops->capabilities & QUARRY_POOL_FRAMES) && old.group != group) {
        qy_node_print_traces(&old);
        qy_fatal(QY_FAULT_WRONG_FRAME, ptr, "block of %z bytes in %s \"%s\", frame %l resized from frame %l", old.size,
            pool->ops->kind, pool->info->name, old.group, group);
    }
    void *p = new_block(pool, group, size, alignment, flags);
    if (!p) return NULL;
    memcpy(p, ptr, qy_min(old.size, size));
    qy_block_node_t *n = qy_observer_take(pool->info->observer, ptr);
    if (!n) not_a_block(pool, ptr);
    qy_pool_trace_resized(pool, ptr, size, p);
    if (pool->mode & QY_MODE_GUARD) qy_node_trace(n->died);
    block_ends(pool, n);
    block_goes(pool, n);
    return p;
}

void qy_observe_end(quarry_pool_t *pool, uint64_t first, uint64_t last) {
    if (!pool->info->observer) return;
    int saved = errno;
    for (qy_block_node_t *n = qy_observer_take_groups(pool->info->observer, first, last), *next; n; n = next) {
        next = n->older;
        block_ends(pool, n);
        if (n->fenced) block_waits(pool, n);
        else {
            give_raw_back(pool, n);
            qy_node_free(n);
        }
    }
    errno = saved;
}

void qy_observe_close(quarry_pool_t *pool) {
    struct qy_observer *o = pool->info->observer;
    if (!o) return;
    qy_observe_end(pool, 0, UINT64_MAX);
    for (qy_block_node_t *n = qy_observer_release_quarantine(o), *next; n; n = next)
        next = n->older, block_leaves(pool, n);
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

uint64_t qy_observe_live(quarry_pool_t *pool) { return qy_observer_live(pool->info->observer, NULL); }

static bool intact(const qy_block_node_t *n, void *arg) {
    quarry_pool_t *pool = arg;
    const unsigned char *raw = qy_shown_pointer(n->raw), *p = qy_shown_pointer(n->ptr), *end = raw + n->raw_bytes;
    return !(pool->mode & QY_MODE_GUARD) ||
           (filled(raw, p, QY_CANARY_BYTE) && filled(p + n->size, end, QY_CANARY_BYTE));
}

const char *qy_observe_check(quarry_pool_t *pool) {
    return !pool->info->observer || qy_observer_all(pool->info->observer, intact, pool)
               ? NULL
               : "a block's canary was overwritten";
}

void qy_observe_stats(quarry_pool_t *pool, quarry_pool_stats_t *stats) {
    if (!pool->info->observer) return;
    size_t bytes;
    qy_observer_live(pool->info->observer, &bytes);
    stats->used_bytes = bytes;
}
