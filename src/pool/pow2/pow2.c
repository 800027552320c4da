// SPDX-License-Identifier: MIT
// pow2.c: the operations of a pow2 pool.
#include <errno.h>
#include <string.h>

#include "pool/observe.h"
#include "pool/pow2.h"
#include "pool/trace.h"

// ---- allocation ---------------------------------------------------------------------------------------------

// Threads begin with a partition of their own, as far as a hash of the thread's address tells them apart.
QY_INLINE unsigned home(const pow2_t *w) {
    uint64_t hash = (uint64_t)qy_os_thread_token() * 0x9E3779B97F4A7C15u;
    return (unsigned)((hash >> 32) * w->partition_count >> 32);
}

typedef struct got {
    void *block;
    size_t dirty;  // all bytes behind these are zero
} got_t;

static got_t taken(pow2_t *w, pow2_partition_t *q, unsigned order, size_t size) {
    got_t got = {NULL, 0};
    got.block = qy_pow2_take(w, q, order, &got.dirty);
    if (got.block) {
        qy_bump(&q->allocs, 1);
        qy_bump(&q->requested, size);
        qy_bump(&q->rounded, pow2_bytes(order));
    }
    return got;
}

QY_INLINE bool may_have(const pow2_partition_t *q, unsigned order) {
    return atomic_load_explicit(&q->orders, memory_order_relaxed) >> order;
}

// Nothing in the first partition, or it was locked: the others, first those whose lock is free, then the rest. Only
// when all have been looked at does the pool grow.
QY_NOINLINE static got_t pow2_search(pow2_t *w, unsigned first, unsigned order, size_t size, uint64_t tried) {
    unsigned count = w->partition_count;
    for (unsigned pass = 0; pass < 2; pass++) {
        for (unsigned i = 0, n = first; i < count; i++, n = n + 1 < count ? n + 1 : 0) {
            pow2_partition_t *q = &w->partitions[n];
            if ((tried >> (n & 63) & 1) || !may_have(q, order)) continue;
            if (pass) pow2_lock(q);
            else if (qy_lock_try(&q->lock)) qy_bump(&q->takes, 1);
            else {
                pow2_add(&q->contended, 1);
                continue;
            }
            tried |= (uint64_t)1 << (n & 63);
            got_t got = taken(w, q, order, size);
            qy_lock_drop(&q->lock);
            if (!got.block) continue;
            if (n != first) pow2_add(&w->steals, 1);
            return got;
        }
    }
    pow2_partition_t *q = &w->partitions[first];
    pow2_lock(q);
    // Another thread may have grown it while this one waited.
    got_t got = taken(w, q, order, size);
    if (!got.block && qy_pow2_grow(w, q, order)) got = taken(w, q, order, size);
    qy_lock_drop(&q->lock);
    return got;
}

// The locks are divided between sizes. A size waits for its own lock, and grows regions of its own: else all sizes
// would be served from the first region there is, under one lock. Others are asked when there is no memory for one.
QY_NOINLINE static got_t take_by_size(pow2_t *w, unsigned order, size_t size) {
    unsigned first = (order - POW2_MIN_ORDER) % w->partition_count;
    pow2_partition_t *q = &w->partitions[first];
    pow2_lock(q);
    got_t got = taken(w, q, order, size);
    if (!got.block && qy_pow2_grow(w, q, order)) got = taken(w, q, order, size);
    qy_lock_drop(&q->lock);
    return QY_LIKELY(got.block != NULL) ? got : pow2_search(w, first, order, size, (uint64_t)1 << first);
}

QY_INLINE got_t take(pow2_t *w, unsigned order, size_t size) {
    if (QY_UNLIKELY(w->flags & QUARRY_POW2_SIZE_LOCKS)) return take_by_size(w, order, size);
    unsigned first = home(w);
    pow2_partition_t *q = &w->partitions[first];
    if (QY_LIKELY(may_have(q, order)) && QY_LIKELY(qy_lock_try(&q->lock))) {
        qy_bump(&q->takes, 1);
        got_t got = taken(w, q, order, size);
        qy_lock_drop(&q->lock);
        if (QY_LIKELY(got.block != NULL)) return got;
        return pow2_search(w, first, order, size, (uint64_t)1 << first);
    }
    return pow2_search(w, first, order, size, 0);
}

static got_t pow2_take(pow2_t *w, size_t size, size_t alignment, bool fresh) {
    unsigned order = pow2_order(qy_max(size, alignment));
    if (QY_LIKELY(order < w->map_order)) return take(w, order, size);
    got_t got = {NULL, 0};
    bool zero;
    got.block = qy_pow2_map(w, size, alignment, fresh, &zero);
    if (got.block) {
        got.dirty = zero ? 0 : size;
        pow2_add(&w->mapped_allocs, 1);
        pow2_add(&w->mapped_requested, size);
    }
    return got;
}

static void *pow2_alloc(quarry_pool_t *pool, size_t size, size_t alignment, unsigned flags) {
    pow2_t *w = (pow2_t *)pool;
    if (!qy_pool_sane(pool, size, alignment)) return qy_pool_refuse(pool, size, alignment);
    got_t got = pow2_take(w, size, alignment, flags & QUARRY_POOL_ZERO);
    if (QY_UNLIKELY(!got.block)) return qy_pool_no_memory(pool, size);
    if (!(flags & QUARRY_POOL_ZERO)) return got.block;
    return memset(got.block, 0, qy_min(size, got.dirty));
}

// ---- free ----------------------------------------------------------------------------------------------------

// What the map says at `p`: MAP_USED and the order, or the end of the process.
QY_INLINE unsigned used_order(pow2_t *w, const pow2_region_t *r, const void *p) {
    unsigned what = ((uintptr_t)p & (QUARRY_POW2_MIN_BLOCK - 1)) == 0 ? r->map[pow2_index(r, p)] : 0;
    if (QY_UNLIKELY(!(what & MAP_USED))) qy_pow2_bad_pointer(w, p);
    return what & MAP_ORDER;
}

static void pow2_give(pow2_t *w, pow2_region_t *r, void *ptr) {
    pow2_partition_t *q = &w->partitions[r->partition];
    pow2_lock(q);
    // The fault is reported with the lock held: the process ends.
    unsigned order = used_order(w, r, ptr);
    bool whole = qy_pow2_give(w, q, r, pow2_index(r, ptr), order);
    qy_bump(&q->frees, 1);
    bool gone = QY_UNLIKELY(whole) && qy_pow2_region_emptied(w, q, r, w->give_back);
    qy_lock_drop(&q->lock);
    if (gone) qy_pow2_region_put(w, r);
    if (QY_UNLIKELY(order >= POW2_DIRTY_ORDER || whole) && atomic_load_explicit(&w->dirty, memory_order_relaxed) >
                                                               atomic_load_explicit(&w->purge_at, memory_order_relaxed))
        qy_pow2_purge(w);
}

static void pow2_free(quarry_pool_t *pool, void *ptr, size_t size) {
    pow2_t *w = (pow2_t *)pool;
    (void)size;
    pow2_region_t *r = pow2_region_of(w, ptr);
    if (QY_LIKELY(r != NULL)) pow2_give(w, r, ptr);
    else if (qy_pow2_unmap(w, ptr)) pow2_add(&w->mapped_frees, 1);
    else qy_pow2_bad_pointer(w, ptr);
}

static size_t pow2_usable(quarry_pool_t *pool, const void *ptr) {
    pow2_t *w = (pow2_t *)pool;
    pow2_region_t *r = pow2_region_of(w, ptr);
    if (r) return pow2_bytes(used_order(w, r, ptr));
    size_t bytes = qy_pow2_mapped_bytes(w, ptr);
    if (!bytes) qy_pow2_bad_pointer(w, ptr);
    return bytes;
}

// ---- resize ----------------------------------------------------------------------------------------------------

// In its region: as it is, smaller, or joined with free neighbours. NULL: it must move. *ret_dirty: bytes behind so
// many are zero, if it was joined.
QY_INLINE void *refit(pow2_t *w, pow2_region_t *r, void *ptr, size_t keep, unsigned to, size_t *ret_dirty) {
    pow2_partition_t *q = &w->partitions[r->partition];
    unsigned order = used_order(w, r, ptr);
    if (to == order) {
        pow2_add(&w->in_place, 1);
        return ptr;
    }
    if (to > order && (w->flags & QUARRY_POW2_NO_MERGE)) return NULL;
    size_t index = pow2_index(r, ptr), at = index;
    pow2_lock(q);
    bool done = true;
    if (to < order) qy_pow2_narrow(w, q, r, index, order, to);
    else done = qy_pow2_widen(w, q, r, index, order, to, &at, ret_dirty);
    qy_lock_drop(&q->lock);
    if (!done) return NULL;
    if (to < order) {
        pow2_add(&w->in_place, 1);
        return ptr;
    }
    pow2_add(&w->by_join, 1);
    void *p = pow2_block(r, at);
    // All of it is the caller's by now, and the two places may overlap.
    if (p != ptr) memmove(p, ptr, keep);
    return p;
}

// `fresh`: bytes behind those that are kept must be zero, as in pow2_take.
QY_INLINE void *move(
    pow2_t *w, void *ptr, size_t keep, size_t size, size_t alignment, bool fresh, bool tells, size_t *ret_dirty) {
    got_t got = pow2_take(w, size, alignment, fresh);
    if (!got.block) return NULL;
    *ret_dirty = got.dirty;
    memcpy(got.block, ptr, keep);
    if (tells) qy_pool_trace_resized(&w->pool, ptr, size, got.block);
    pow2_free(&w->pool, ptr, QUARRY_SIZE_UNKNOWN);
    return got.block;
}

// A mapping that moves is somewhere else before it is known where.
static void *remap_and_tell(pow2_t *w, void *ptr, size_t size, size_t alignment, size_t *ret_dirty) {
    qy_pool_trace_moving(&w->pool);
    return qy_pool_trace_moved(&w->pool, ptr, size, qy_pow2_remap(w, ptr, size, alignment, ret_dirty));
}

// `tells`, a constant: the recorder, if the pool is recorded.
QY_INLINE void *resize(
    quarry_pool_t *pool, void *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags, bool tells) {
    pow2_t *w = (pow2_t *)pool;
    if (!qy_pool_sane(pool, size, alignment)) return qy_pool_refuse(pool, size, alignment);
    size_t usable = pow2_usable(pool, ptr), old = qy_min(old_size, usable), keep = qy_min(old, size), dirty = size;
    pow2_region_t *r = pow2_region_of(w, ptr);
    unsigned to = pow2_order(qy_max(size, alignment));
    char *p = NULL;
    if (r && to < w->map_order) {
        p = refit(w, r, ptr, keep, to, &dirty);
        if (tells) qy_pool_trace_resized(pool, ptr, size, p);
    } else if (!r && to >= w->map_order) {
        p = tells ? remap_and_tell(w, ptr, size, alignment, &dirty) : qy_pow2_remap(w, ptr, size, alignment, &dirty);
        if (p) pow2_add(&w->in_place, 1);
    }
    if (!p) p = move(w, ptr, keep, size, alignment, flags & QUARRY_POOL_ZERO, tells, &dirty);
    if (!p) return qy_pool_no_memory(pool, size);
    pow2_add(&w->resizes, 1);
    pow2_add(&w->resize_requested, size);
    dirty = qy_min(dirty, size);
    if ((flags & QUARRY_POOL_ZERO) && dirty > old) memset(p + old, 0, dirty - old);
    return p;
}

static void *pow2_resize(
    quarry_pool_t *pool, void *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags) {
    return ptr ? resize(pool, ptr, old_size, size, alignment, flags, false) : pow2_alloc(pool, size, alignment, flags);
}

// ---- observed, logged or recorded
// ------------------------------------------------------------------------------------------

static void *pow2_raw_alloc(quarry_pool_t *pool, size_t size, size_t alignment) {
    return pow2_take((pow2_t *)pool, size, alignment, false).block;
}

static void *pow2_observed_alloc(quarry_pool_t *pool, size_t size, size_t alignment, unsigned flags) {
    if (pool->mode & QY_MODE_OBSERVED) return qy_observe_alloc(pool, &QY_STACK_CALLER(), 0, size, alignment, flags);
    void *p = pow2_alloc(pool, size, alignment, flags);
    if (p) qy_count(pool, QY_COUNT_ALLOC, size);
    return qy_pool_trace_alloc(pool, size, alignment, p);
}
static void *pow2_observed_resize(
    quarry_pool_t *pool, void *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags) {
    if (!ptr) return pow2_observed_alloc(pool, size, alignment, flags);
    if (pool->mode & QY_MODE_OBSERVED)
        return qy_observe_resize(pool, &QY_STACK_CALLER(), 0, ptr, size, alignment, flags);
    void *p = resize(pool, ptr, old_size, size, alignment, flags, true);
    if (p) qy_count(pool, QY_COUNT_RESIZE, size);
    return p;
}
static void pow2_observed_free(quarry_pool_t *pool, void *ptr, size_t size) {
    if (pool->mode & QY_MODE_OBSERVED) {
        qy_observe_free(pool, &QY_STACK_CALLER(), ptr);
    } else {
        qy_count(pool, QY_COUNT_FREE, 0);
        qy_pool_trace_free(pool, ptr);
        pow2_free(pool, ptr, size);
    }
}
static size_t pow2_observed_usable(quarry_pool_t *pool, const void *ptr) {
    return pool->mode & QY_MODE_OBSERVED ? qy_observe_usable(pool, ptr) : pow2_usable(pool, ptr);
}

static uint64_t pow2_freed(const pow2_t *w) {
    uint64_t frees = atomic_load_explicit(&w->mapped_frees, memory_order_acquire);
    for (unsigned i = 0; i < w->partition_count; i++)
        frees += atomic_load_explicit(&w->partitions[i].frees, memory_order_acquire);
    return frees;
}

static void pow2_stats(quarry_pool_t *pool, quarry_pool_stats_t *stats) {
    pow2_t *w = (pow2_t *)pool;
    if (pool->mode & QY_MODE_OBSERVED) return;  // the observer knows
    uint64_t allocs = 0, requested = 0;
    size_t used = atomic_load_explicit(&w->mapped_bytes, memory_order_relaxed);
    stats->frees = pow2_freed(w);  // before allocations, so that it is never more than these
    for (unsigned i = 0; i < w->partition_count; i++) {
        const pow2_partition_t *q = &w->partitions[i];
        allocs += pow2_get(&q->allocs);
        requested += pow2_get(&q->requested);
        used += atomic_load_explicit(&q->used_bytes, memory_order_relaxed);
    }
    stats->resizes = pow2_get(&w->resizes);
    stats->allocs = allocs + pow2_get(&w->mapped_allocs);
    stats->requested_bytes = requested + pow2_get(&w->mapped_requested) + pow2_get(&w->resize_requested);
    stats->used_bytes = used;
}

// ---- life -----------------------------------------------------------------------------------------------------------

void qy_pow2_fork(quarry_pool_t *pool, int phase) {
    pow2_t *w = (pow2_t *)pool;
    for (unsigned i = 0; i < w->partition_count; i++) qy_lock_fork(&w->partitions[i].lock, phase);
    qy_lock_fork(&w->table_lock, phase);
    qy_lock_fork(&w->mapped_lock, phase);
}

static void pow2_destroy(quarry_pool_t *pool) {
    pow2_t *w = (pow2_t *)pool;
    qy_pool_retire(pool);
    qy_pool_trace_close(pool);
    qy_observe_close(pool);
    qy_pow2_mapped_end(w);
    qy_pow2_regions_end(w);
    qy_pool_drop(pool);
}

#define TABLE(prefix)                                                                                                \
    {                                                                                                                \
        .kind = "pow2",                                                                                              \
        .capabilities = QUARRY_POOL_FREES | QUARRY_POOL_SIZES | QUARRY_POOL_ANY_FREE | QUARRY_POOL_SHARED,           \
        .max_alignment = (size_t)1 << 30, .alloc = prefix##_alloc, .resize = prefix##_resize, .free = prefix##_free, \
        .usable = prefix##_usable, .check = qy_pow2_check, .stats = pow2_stats, .destroy = pow2_destroy,             \
        .raw_alloc = pow2_raw_alloc, .raw_free = pow2_free, .fork = qy_pow2_fork                                     \
    }
const quarry_pool_ops_t qy_pow2_ops = TABLE(pow2);
const quarry_pool_ops_t qy_pow2_observed_ops = TABLE(pow2_observed);

#define MIB ((size_t)1 << 20)

static bool options_good(const quarry_pow2_options_t *o) {
    size_t region = o->region_bytes ? o->region_bytes : 32 * MIB;
    const unsigned known = QUARRY_POW2_NO_MERGE | QUARRY_POW2_SIZE_LOCKS;
    return o->partitions <= QUARRY_POW2_PARTITIONS_MAX && !(o->flags & ~known) && qy_is_pow2(region) &&
           region >= pow2_bytes(POW2_MIN_REGION) && region <= pow2_bytes(POW2_MAX_ORDER) &&
           (!o->map_bytes ||
               (qy_is_pow2(o->map_bytes) && o->map_bytes > QUARRY_POW2_MIN_BLOCK && o->map_bytes <= region));
}

bool qy_pow2_start(pow2_t *w, const quarry_pow2_options_t *o, unsigned partitions) {
    w->partition_count = partitions;
    w->flags = o->flags;
    w->region_order = qy_log2_floor(o->region_bytes ? o->region_bytes : 32 * MIB);
    w->map_order = qy_log2_floor(o->map_bytes ? o->map_bytes : qy_min(MIB, pow2_bytes((unsigned)w->region_order)));
    w->give_back = o->give_back_bytes ? o->give_back_bytes : 32 * MIB;
    atomic_store_explicit(&w->purge_at, w->give_back, memory_order_relaxed);
    return qy_pow2_table_init(w);
}

unsigned qy_pow2_default_partitions(const quarry_pow2_options_t *o) {
    size_t map_bytes = o->map_bytes ? o->map_bytes : qy_min(MIB, o->region_bytes ? o->region_bytes : MIB);
    if (o->flags & QUARRY_POW2_SIZE_LOCKS) return qy_max(qy_log2_floor(map_bytes) - POW2_MIN_ORDER, 1u);
    return (unsigned)qy_min(qy_os_cpu_count(), QUARRY_POW2_PARTITIONS_MAX);
}

quarry_pool_t *quarry_pow2_create(const quarry_pow2_options_t *options) {
    static const quarry_pow2_options_t none;
    const quarry_pow2_options_t *o = options ? options : &none;
    if (!options_good(o)) {
        errno = EINVAL;
        return NULL;
    }
    unsigned partitions = o->partitions ? o->partitions : qy_pow2_default_partitions(o);
    pow2_t *w = qy_pool_new(&qy_pow2_ops, pow2_object_bytes(partitions), &o->pool);
    if (!w) return NULL;
    if (w->pool.mode) w->pool.ops = &qy_pow2_observed_ops;
    if (qy_pow2_start(w, o, partitions)) {
        qy_pool_ready(&w->pool);
        return &w->pool;
    }
    qy_pool_drop(&w->pool);
    errno = ENOMEM;
    return NULL;
}
