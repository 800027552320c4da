// SPDX-License-Identifier: MIT
// tlsf.c: allocation, free and resize of a tlsf pool. No function here has a loop (tests/pool/loops.py looks).
#include <string.h>

#include "pool/observe.h"
#include "pool/trace.h"
#include "pool/tlsf.h"

// ---- lists ----------------------------------------------------------------------------------------------

void qy_tlsf_enlist(tlsf_t *t, tlsf_block_t *b) {
    qy_assert(tlsf_is_head(t, b) && (b->head & FLAG_FREE) && tlsf_bytes(b) >= TLSF_MIN_BLOCK);
    tlsf_class_t c = tlsf_class(tlsf_bytes(b));
    tlsf_block_t *first = t->lists[c.row][c.column];
    b->next_free = first;
    b->prev_free = NULL;
    if (first) first->prev_free = b;
    t->lists[c.row][c.column] = b;
    t->columns[c.row] |= 1u << c.column;
    t->rows |= (uint64_t)1 << c.row;
}

// Links are the one thing here that a stray write of the program decides over: nothing is written through a link that
// is not answered from the other side.
QY_INLINE void delist(tlsf_t *t, tlsf_block_t *b) {
    tlsf_class_t c = tlsf_class(tlsf_bytes(b));
    tlsf_block_t *next = b->next_free, *prev = b->prev_free;
    if (next && QY_UNLIKELY(!tlsf_within(t, next) || next->prev_free != b))
        qy_tlsf_damaged(t, b, "a free block's link was written to");
    if (prev) {
        if (QY_UNLIKELY(!tlsf_within(t, prev) || prev->next_free != b))
            qy_tlsf_damaged(t, b, "a free block's link was written to");
        prev->next_free = next;
    } else {
        if (QY_UNLIKELY(t->lists[c.row][c.column] != b)) qy_tlsf_damaged(t, b, "a free block is in no list");
        t->lists[c.row][c.column] = next;
        if (!next && !(t->columns[c.row] &= ~(1u << c.column))) t->rows &= ~((uint64_t)1 << c.row);
    }
    if (next) next->prev_free = prev;
}
void qy_tlsf_delist(tlsf_t *t, tlsf_block_t *b) { delist(t, b); }

// A free block of at least `bytes`, still in its list; NULL if no list holds one for sure.
QY_INLINE tlsf_block_t *find(tlsf_t *t, size_t bytes) {
    tlsf_class_t c = tlsf_class_above(bytes);
    uint32_t columns = t->columns[c.row] & (~0u << c.column);
    if (!columns) {
        uint64_t rows = t->rows & (~(uint64_t)0 << 1 << c.row);
        if (!rows) {
            // Nothing surely fits. The list below may hold what fits nevertheless; one look is allowed.
            c = tlsf_class(bytes);
            tlsf_block_t *b = t->lists[c.row][c.column];
            return b && tlsf_bytes(b) >= bytes ? b : NULL;
        }
        c.row = (unsigned)__builtin_ctzll(rows);
        columns = t->columns[c.row];
    }
    c.column = (unsigned)__builtin_ctz(columns);
    return t->lists[c.row][c.column];
}

// ---- blocks ---------------------------------------------------------------------------------------------

QY_INLINE size_t block_bytes(size_t size) {
    return qy_max(qy_round_up(size + QUARRY_TLSF_BLOCK_OVERHEAD, TLSF_GRAIN), TLSF_MIN_BLOCK);
}

// `b`, used, keeps `bytes`; the rest becomes a free block, if it is large enough to be one. What follows is not free.
QY_INLINE void cut_tail(tlsf_t *t, tlsf_block_t *b, size_t bytes) {
    size_t whole = tlsf_bytes(b), rest = whole - bytes;
    qy_assert(whole >= bytes && bytes >= TLSF_MIN_BLOCK && !(b->head & FLAG_FREE));
    tlsf_block_t *next = tlsf_at(b, whole);
    if (rest < TLSF_MIN_BLOCK) {
        next->head &= ~(uint64_t)FLAG_PREV_FREE;
        return;
    }
    tlsf_block_t *tail = tlsf_at(b, bytes);
    tlsf_set_bytes(b, bytes);
    tlsf_set_head(t, tail, rest, FLAG_FREE);
    next->prev = tail;
    next->head |= FLAG_PREV_FREE;
    qy_tlsf_enlist(t, tail);
}

// `b`, in no list, begins `gap` bytes later; what lies before it is a free block.
QY_INLINE tlsf_block_t *cut_front(tlsf_t *t, tlsf_block_t *b, size_t gap) {
    tlsf_block_t *rest = tlsf_at(b, gap);
    qy_assert(gap >= TLSF_MIN_BLOCK && gap < tlsf_bytes(b));
    tlsf_set_head(t, rest, tlsf_bytes(b) - gap, FLAG_FREE | FLAG_PREV_FREE);
    tlsf_set_bytes(b, gap);
    rest->prev = b;
    qy_tlsf_enlist(t, b);
    return rest;
}

QY_INLINE void *take(tlsf_t *t, size_t size, size_t alignment) {
    size_t bytes = block_bytes(size);
    TLSF_NEEDS_LOCK(t);
    // Room to move to the boundary, and if that leaves less than a block before it, to the next.
    size_t need = alignment <= TLSF_GRAIN ? bytes : bytes + alignment + TLSF_GRAIN;
    if (QY_UNLIKELY(need > TLSF_MAX / 2)) return NULL;
    tlsf_block_t *b = find(t, need);
    if (QY_UNLIKELY(!b)) b = qy_tlsf_grow(t, need);
    if (QY_UNLIKELY(!b)) return NULL;
    if (QY_UNLIKELY(!tlsf_is_head(t, b) || !(b->head & FLAG_FREE) || tlsf_bytes(b) < need))
        qy_tlsf_damaged(t, b, "the head of a free block was written over");
    if (QY_UNLIKELY(tlsf_region_of(b) == t->spare)) t->spare = NULL;
    delist(t, b);
    if (alignment > TLSF_GRAIN) {
        size_t gap = -(uintptr_t)tlsf_payload(b) & (alignment - 1);
        if (gap && gap < TLSF_MIN_BLOCK) gap += alignment;
        if (gap) b = cut_front(t, b, gap);
    }
    b->head &= ~(uint64_t)FLAG_FREE;
    cut_tail(t, b, bytes);
    qy_assert(((uintptr_t)tlsf_payload(b) & (alignment - 1)) == 0 && tlsf_room(b) >= size);
    return tlsf_payload(b);
}

// The used block at `ptr`, or the end of the process. *ret_next: what follows it.
QY_INLINE tlsf_block_t *used_block(tlsf_t *t, void *ptr, tlsf_block_t **ret_next) {
    tlsf_block_t *b = tlsf_block_of(ptr);
    if (QY_UNLIKELY(!tlsf_within(t, b) || !tlsf_is_head(t, b) || (b->head & (FLAG_FREE | FLAG_END))))
        qy_tlsf_bad_pointer(t, ptr);
    tlsf_block_t *next = tlsf_next(b);
    if (QY_UNLIKELY(!tlsf_within(t, next) || !tlsf_is_head(t, next) || (next->head & FLAG_PREV_FREE)))
        qy_tlsf_damaged(t, b, "a block was written beyond its end, or its head was written over");
    *ret_next = next;
    return b;
}

// Make `b`, used, with `next` behind it, a free block, as large as its neighbours allow.
QY_INLINE void release(tlsf_t *t, tlsf_block_t *b, tlsf_block_t *next) {
    size_t bytes = tlsf_bytes(b);
    TLSF_NEEDS_LOCK(t);
    b->head |= FLAG_FREE;  // also if it is joined: a second free finds this
    if (b->head & FLAG_PREV_FREE) {
        tlsf_block_t *prev = b->prev;
        if (QY_UNLIKELY(
                !tlsf_within(t, prev) || !tlsf_is_head(t, prev) || !(prev->head & FLAG_FREE) || tlsf_next(prev) != b))
            qy_tlsf_damaged(t, b, "the end of the free block before it was written to");
        delist(t, prev);
        bytes += tlsf_bytes(prev);
        b = prev;
    }
    if (next->head & FLAG_FREE) {
        tlsf_block_t *after = tlsf_next(next);
        if (QY_UNLIKELY(!tlsf_within(t, after) || !tlsf_is_head(t, after) || after->prev != next))
            qy_tlsf_damaged(t, next, "a free block was written to");
        delist(t, next);
        bytes += tlsf_bytes(next);
        next = after;
    }
    tlsf_set_bytes(b, bytes);
    next->prev = b;
    next->head |= FLAG_PREV_FREE;
    qy_tlsf_enlist(t, b);
    if (QY_UNLIKELY((b->head & FLAG_FIRST) && (next->head & FLAG_END))) qy_tlsf_region_emptied(t, b);
}

// In place: shrink, or take what is needed of a free block behind. False: there is not enough.
QY_INLINE bool refit(tlsf_t *t, tlsf_block_t *b, tlsf_block_t *next, size_t bytes) {
    size_t have = tlsf_bytes(b);
    TLSF_NEEDS_LOCK(t);
    if (bytes > have) {
        if (!(next->head & FLAG_FREE) || bytes - have > tlsf_bytes(next)) return false;
        tlsf_block_t *after = tlsf_next(next);
        if (QY_UNLIKELY(!tlsf_within(t, after) || !tlsf_is_head(t, after) || after->prev != next))
            qy_tlsf_damaged(t, next, "a free block was written to");
        delist(t, next);
        tlsf_set_bytes(b, have + tlsf_bytes(next));
        cut_tail(t, b, bytes);
        return true;
    }
    if (have - bytes < TLSF_MIN_BLOCK) return true;
    tlsf_block_t *tail = tlsf_at(b, bytes);
    tlsf_set_bytes(b, bytes);
    tlsf_set_head(t, tail, have - bytes, 0);
    release(t, tail, next);
    return true;
}

// In place, into fresh memory: the end mark is next, or behind what is. (One comparison says mostly that it is not.)
QY_INLINE bool reach(tlsf_t *t, tlsf_block_t *b, tlsf_block_t *next, size_t bytes) {
    return QY_UNLIKELY(tlsf_next(next) == t->end) && qy_tlsf_reach(t, b, next, bytes);
}

// Zeros from `from` to `end`, but for those that are there.
static void tlsf_clear(char *from, char *end, tlsf_clean_t clean) {
    char *skip = from > clean.from ? from : clean.from, *go_on = end < clean.to ? end : clean.to;
    if (skip >= go_on) {
        memset(from, 0, (size_t)(end - from));
    } else {
        memset(from, 0, (size_t)(skip - from));
        memset(go_on, 0, (size_t)(end - go_on));
    }
}

// ---- operations -----------------------------------------------------------------------------------------

static void *tlsf_alloc(quarry_pool_t *pool, size_t size, size_t alignment, unsigned flags) {
    tlsf_t *t = (tlsf_t *)pool;
    if (!qy_pool_sane(pool, size, alignment)) return qy_pool_refuse(pool, size, alignment);
    void *p = take(t, size, alignment);
    if (QY_UNLIKELY(!p)) return qy_pool_no_memory(pool, size);
    qy_bump(&t->used, tlsf_bytes(tlsf_block_of(p)));
    qy_bump(&t->allocs, 1);
    qy_bump(&t->requested, size);
    TLSF_ASSERT_SOUND(t);
    if (flags & QUARRY_POOL_ZERO) tlsf_clear(p, (char *)p + size, tlsf_clean(t));
    return p;
}

static void tlsf_free(quarry_pool_t *pool, void *ptr, size_t size) {
    tlsf_t *t = (tlsf_t *)pool;
    (void)size;
    tlsf_block_t *next, *b = used_block(t, ptr, &next);
    qy_bump(&t->used, -tlsf_bytes(b));
    qy_bump(&t->frees, 1);
    release(t, b, next);
    TLSF_ASSERT_SOUND(t);
}

static size_t tlsf_usable(quarry_pool_t *pool, const void *ptr) {
    tlsf_block_t *next;
    return tlsf_room(used_block((tlsf_t *)pool, (void *)(uintptr_t)ptr, &next));
}

static void *tlsf_resize(
    quarry_pool_t *pool, void *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags) {
    tlsf_t *t = (tlsf_t *)pool;
    if (!ptr) return tlsf_alloc(pool, size, alignment, flags);
    if (!qy_pool_sane(pool, size, alignment)) return qy_pool_refuse(pool, size, alignment);
    tlsf_block_t *next, *b = used_block(t, ptr, &next);
    size_t had = tlsf_bytes(b), old = qy_min(old_size, tlsf_room(b)), bytes = block_bytes(size);
    char *p = ptr;
    bool fits = ((uintptr_t)ptr & (alignment - 1)) == 0;
    size_t kept = fits ? old : qy_min(old, size);  // what moves for its size alone is larger
    if (!fits || (!refit(t, b, next, bytes) && !reach(t, b, next, bytes))) {
        p = take(t, size, alignment);
        if (QY_UNLIKELY(!p)) return qy_pool_no_memory(pool, size);
        memcpy(p, ptr, kept);
        // The neighbour may be another now: the new block may have been cut from it.
        release(t, b, tlsf_next(b));
    }
    qy_bump(&t->used, tlsf_bytes(tlsf_block_of(p)) - had);
    qy_bump(&t->resizes, 1);
    qy_bump(&t->requested, size);
    TLSF_ASSERT_SOUND(t);
    if ((flags & QUARRY_POOL_ZERO) && size > old) tlsf_clear(p + old, p + size, tlsf_clean(t));
    return p;
}

// Under observation: a block without bookkeeping. The observer holds no lock of its own meanwhile.
static void *tlsf_raw_alloc(quarry_pool_t *pool, size_t size, size_t alignment) {
    tlsf_t *t = (tlsf_t *)pool;
    tlsf_lock(t);
    void *p = take(t, size, alignment);
    tlsf_unlock(t);
    return p;
}
static void tlsf_raw_free(quarry_pool_t *pool, void *ptr, size_t size) {
    tlsf_t *t = (tlsf_t *)pool;
    (void)size;
    tlsf_lock(t);
    tlsf_block_t *next, *b = used_block(t, ptr, &next);
    release(t, b, next);
    tlsf_unlock(t);
}

static const char *tlsf_check(quarry_pool_t *pool) {
    tlsf_lock((tlsf_t *)pool);
    const char *wrong = qy_tlsf_check((tlsf_t *)pool);
    tlsf_unlock((tlsf_t *)pool);
    return wrong;
}

static void tlsf_stats(quarry_pool_t *pool, quarry_pool_stats_t *stats) {
    tlsf_t *t = (tlsf_t *)pool;
    size_t lent = atomic_load_explicit(&t->lent, memory_order_relaxed);
    stats->held_bytes += lent;
    stats->peak_held_bytes = qy_max(stats->peak_held_bytes, stats->held_bytes);
    if (pool->mode & QY_MODE_OBSERVED) return;  // the observer knows the rest
    stats->used_bytes = atomic_load_explicit(&t->used, memory_order_relaxed);
    stats->allocs = atomic_load_explicit(&t->allocs, memory_order_relaxed);
    stats->frees = atomic_load_explicit(&t->frees, memory_order_relaxed);
    stats->resizes = atomic_load_explicit(&t->resizes, memory_order_relaxed);
    stats->requested_bytes = atomic_load_explicit(&t->requested, memory_order_relaxed);
}

// ---- under the pool's lock ------------------------------------------------------------------------------

static void *locked_zeros(tlsf_t *t, size_t size, size_t alignment) {
    qy_lock_take(&t->lock);
    void *p = tlsf_alloc(&t->pool, size, alignment, 0);
    tlsf_clean_t clean = tlsf_clean(t);
    qy_lock_drop(&t->lock);
    if (p) tlsf_clear(p, (char *)p + size, clean);  // clearing needs no lock
    return p;
}
static void *locked_alloc(quarry_pool_t *pool, size_t size, size_t alignment, unsigned flags) {
    tlsf_t *t = (tlsf_t *)pool;
    if (flags & QUARRY_POOL_ZERO) return locked_zeros(t, size, alignment);
    qy_lock_take(&t->lock);
    void *p = tlsf_alloc(pool, size, alignment, 0);
    qy_lock_drop(&t->lock);
    return p;
}
static void *locked_resize(
    quarry_pool_t *pool, void *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags) {
    tlsf_t *t = (tlsf_t *)pool;
    qy_lock_take(&t->lock);
    void *p = tlsf_resize(pool, ptr, old_size, size, alignment, flags);
    qy_lock_drop(&t->lock);
    return p;
}
static void locked_free(quarry_pool_t *pool, void *ptr, size_t size) {
    tlsf_t *t = (tlsf_t *)pool;
    qy_lock_take(&t->lock);
    tlsf_free(pool, ptr, size);
    qy_lock_drop(&t->lock);
}
static size_t locked_usable(quarry_pool_t *pool, const void *ptr) {
    tlsf_t *t = (tlsf_t *)pool;
    qy_lock_take(&t->lock);
    size_t bytes = tlsf_usable(pool, ptr);
    qy_lock_drop(&t->lock);
    return bytes;
}

static void locked_fork(quarry_pool_t *pool, int phase) {
    tlsf_t *t = (tlsf_t *)pool;
    qy_pool_fork_walked(&t->lock, &t->walk_ends, phase);
}

// ---- observed, logged or recorded
// ------------------------------------------------------------------------------------

static void *tlsf_observed_alloc(quarry_pool_t *pool, size_t size, size_t alignment, unsigned flags) {
    tlsf_t *t = (tlsf_t *)pool;
    if (pool->mode & QY_MODE_OBSERVED) return qy_observe_alloc(pool, &QY_STACK_CALLER(), 0, size, alignment, flags);
    tlsf_lock(t);
    void *p = tlsf_alloc(pool, size, alignment, flags);
    if (p) qy_count(pool, QY_COUNT_ALLOC, size);
    qy_pool_trace_alloc(pool, size, alignment, p);
    tlsf_unlock(t);
    return p;
}
static void *tlsf_observed_resize(
    quarry_pool_t *pool, void *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags) {
    tlsf_t *t = (tlsf_t *)pool;
    if (!ptr) return tlsf_observed_alloc(pool, size, alignment, flags);
    if (pool->mode & QY_MODE_OBSERVED)
        return qy_observe_resize(pool, &QY_STACK_CALLER(), 0, ptr, size, alignment, flags);
    tlsf_lock(t);
    void *p = tlsf_resize(pool, ptr, old_size, size, alignment, flags);
    if (p) qy_count(pool, QY_COUNT_RESIZE, size);
    qy_pool_trace_resized(pool, ptr, size, p);
    tlsf_unlock(t);
    return p;
}
static void tlsf_observed_free(quarry_pool_t *pool, void *ptr, size_t size) {
    tlsf_t *t = (tlsf_t *)pool;
    if (pool->mode & QY_MODE_OBSERVED) {
        qy_observe_free(pool, &QY_STACK_CALLER(), ptr);
        return;
    }
    tlsf_lock(t);
    qy_count(pool, QY_COUNT_FREE, 0);
    qy_pool_trace_free(pool, ptr);
    tlsf_free(pool, ptr, size);
    tlsf_unlock(t);
}
static size_t tlsf_observed_usable(quarry_pool_t *pool, const void *ptr) {
    if (pool->mode & QY_MODE_OBSERVED) return qy_observe_usable(pool, ptr);
    return pool->ops->fork ? locked_usable(pool, ptr) : tlsf_usable(pool, ptr);
}

// ---- tables -------------------------------------------------------------------------------------------------

// What calls do besides allocating is decided once, by the table a pool gets, so that no call asks.
#define CAN (QUARRY_POOL_FREES | QUARRY_POOL_SIZES)
#define CAN_SHARED (CAN | QUARRY_POOL_ANY_FREE | QUARRY_POOL_SHARED)
#define TABLE(prefix, can, fork_op)                                                                           \
    {                                                                                                         \
        .kind = "tlsf", .capabilities = (can), .max_alignment = (size_t)1 << 30,                              \
        .alloc = prefix##_alloc, .resize = prefix##_resize, .free = prefix##_free, .usable = prefix##_usable, \
        .check = tlsf_check, .stats = tlsf_stats, .destroy = qy_tlsf_destroy,                                 \
        .raw_alloc = tlsf_raw_alloc, .raw_free = tlsf_raw_free, .fork = (fork_op)                             \
    }
const quarry_pool_ops_t qy_tlsf_ops = TABLE(tlsf, CAN, NULL);
const quarry_pool_ops_t qy_tlsf_locked_ops = TABLE(locked, CAN_SHARED, locked_fork);
const quarry_pool_ops_t qy_tlsf_observed_ops = TABLE(tlsf_observed, CAN, NULL);
const quarry_pool_ops_t qy_tlsf_observed_locked_ops = TABLE(tlsf_observed, CAN_SHARED, locked_fork);
