// SPDX-License-Identifier: MIT
// tlsf_region.c: the life of a tlsf pool, and of the regions its blocks lie in.
#include <errno.h>

#include "os/os.h"
#include "pool/observe.h"
#include "pool/trace.h"
#include "pool/tlsf.h"

#define CHUNK_BYTES ((size_t)1 << 20)

// ---- regions ----------------------------------------------------------------------------------------------

// The bounds may be too wide after a region has gone, never too narrow.
static void find_bounds(tlsf_t *t) {
    uintptr_t low = UINTPTR_MAX, high = 0;
    for (tlsf_region_t *r = t->regions; r; r = r->next) {
        low = qy_min(low, (uintptr_t)r);
        high = qy_max(high, (uintptr_t)r + tlsf_region_whole(r));
    }
    t->low = t->regions ? low : 0;
    t->high = high;
}

static void set_open(tlsf_t *t, tlsf_region_t *r) {
    t->open = r;
    t->end = r ? tlsf_region_end(r) : NULL;
}

// The block before the end mark, in its list, is free; the mark stands where the region's bytes end.
static void mark_end(tlsf_t *t, tlsf_region_t *r, tlsf_block_t *last) {
    tlsf_block_t *end = tlsf_region_end(r);
    tlsf_set_head(t, end, 0, FLAG_END | FLAG_PREV_FREE);
    end->prev = last;
    qy_tlsf_enlist(t, last);
}

// One free block from the record to the end mark. `given` was checked: the region is neither too small nor too large.
// The end mark stands behind `bytes`, which is SIZE_MAX for all there are.
static tlsf_block_t *install(tlsf_t *t, void *base, size_t given, size_t bytes, bool grown) {
    tlsf_region_t *r = qy_ptr_up(base, TLSF_GRAIN);
    *r = (tlsf_region_t){.next = t->regions, .base = base, .given = given, .grown = grown};
    r->bytes = qy_min(bytes, tlsf_region_whole(r));
    if (tlsf_region_fresh(r) < TLSF_MIN_BLOCK) r->bytes = tlsf_region_whole(r);
    if (r->next) r->next->prev = r;
    t->regions = r;
    find_bounds(t);
    tlsf_block_t *first = tlsf_region_first(r);
    tlsf_set_head(t, first, (size_t)((char *)tlsf_region_end(r) - (char *)first), FLAG_FREE | FLAG_FIRST);
    mark_end(t, r, first);
    return first;
}

static bool tlsf_region_is_empty(tlsf_region_t *r) {
    tlsf_block_t *first = tlsf_region_first(r);
    return (first->head & FLAG_FREE) && tlsf_next(first) == tlsf_region_end(r);
}

static void uninstall(tlsf_t *t, tlsf_region_t *r) {
    TLSF_NEEDS_LOCK(t);
    qy_assert(tlsf_region_is_empty(r));
    qy_tlsf_delist(t, tlsf_region_first(r));
    if (r->prev) r->prev->next = r->next;
    else t->regions = r->next;
    if (r->next) r->next->prev = r->prev;
    if (t->spare == r) t->spare = NULL;
    if (t->open == r) set_open(t, NULL);
    find_bounds(t);
}

// ---- fresh memory ------------------------------------------------------------------------------------------

// The end mark went from `old` to where it is. Heads and links that are written at its places are none of the fresh
// memory.
static void tell_clean(tlsf_t *t, char *old, tlsf_region_t *r) {
    t->clean = (tlsf_clean_t){old + TLSF_MIN_BLOCK, (char *)tlsf_region_end(r)};
    t->clean_counted = t->allocs + t->resizes;
}

// The free block before the end mark, or NULL.
static tlsf_block_t *before_end(tlsf_t *t, tlsf_block_t *end) {
    if (!(end->head & FLAG_PREV_FREE)) return NULL;
    tlsf_block_t *b = end->prev;
    if (!tlsf_within(t, b) || !tlsf_is_head(t, b) || !(b->head & FLAG_FREE) || tlsf_next(b) != end)
        qy_tlsf_damaged(t, end, "the end of the free block before it was written to");
    return b;
}

// The end mark moves on by `bytes`. What it passes is a free block, or part of the one before.
static tlsf_block_t *pass(tlsf_t *t, tlsf_region_t *r, size_t bytes) {
    tlsf_block_t *end = tlsf_region_end(r), *b = before_end(t, end);
    qy_assert(bytes >= TLSF_MIN_BLOCK && bytes <= tlsf_region_fresh(r) && bytes % TLSF_GRAIN == 0);
    if (b) {
        qy_tlsf_delist(t, b);
        tlsf_set_bytes(b, tlsf_bytes(b) + bytes);
    } else {
        b = end;
        tlsf_set_head(t, b, bytes, FLAG_FREE);
    }
    r->bytes += bytes;
    mark_end(t, r, b);
    return b;
}

// How far the end mark of `r` goes for `bytes` that are missing. 0: not as far.
static size_t stride(const tlsf_region_t *r, size_t bytes, size_t least) {
    size_t fresh = tlsf_region_fresh(r), step = qy_max(qy_max(bytes, TLSF_MIN_BLOCK), least);
    if (fresh < qy_max(bytes, TLSF_MIN_BLOCK)) return 0;
    return fresh < step + TLSF_MIN_BLOCK ? fresh : step;
}

static tlsf_block_t *tlsf_grow_here(tlsf_t *t, size_t bytes) {
    tlsf_region_t *r = t->open;
    tlsf_block_t *end = t->end, *before = before_end(t, end);
    size_t have = before ? tlsf_bytes(before) : 0;
    if (have >= bytes) return before;  // the lists showed another one of its class, which is too small
    size_t step = stride(r, bytes - have, TLSF_STEP);
    if (!step) return NULL;
    before = pass(t, r, step);
    set_open(t, r);
    tell_clean(t, (char *)end, r);
    return before;
}

bool qy_tlsf_reach(tlsf_t *t, tlsf_block_t *b, tlsf_block_t *next, size_t bytes) {
    tlsf_region_t *r = t->open;
    bool joins = next->head & FLAG_FREE;
    size_t have = tlsf_bytes(b) + (joins ? tlsf_bytes(next) : 0);
    tlsf_block_t *end = t->end;
    TLSF_NEEDS_LOCK(t);
    if (tlsf_at(b, have) != end) return false;
    // refit found no room, so something is missing.
    size_t step = stride(r, bytes - have, 0);
    if (!step) return false;
    if (joins) qy_tlsf_delist(t, before_end(t, end));
    r->bytes += step;
    tlsf_set_bytes(b, have + step);
    set_open(t, r);
    tlsf_set_head(t, t->end, 0, FLAG_END);
    tell_clean(t, (char *)end, r);
    return true;
}

// ---- growing from the parent, and back --------------------------------------------------------------------

// Only one region stays open: the one with more fresh memory. The other's becomes a free block.
static void close_lesser(tlsf_t *t, tlsf_region_t *r) {
    tlsf_region_t *other = t->open;
    if (other && tlsf_region_fresh(other) > tlsf_region_fresh(r)) {
        set_open(t, other);
        other = r;
    } else {
        set_open(t, r);
    }
    if (other && tlsf_region_fresh(other) >= TLSF_MIN_BLOCK) pass(t, other, tlsf_region_fresh(other));
}

// A quarter of what there is: the number of regions stays a logarithm of the pool's size.
tlsf_block_t *qy_tlsf_grow(tlsf_t *t, size_t bytes) {
    quarry_pool_t *pool = &t->pool;
    TLSF_NEEDS_LOCK(t);
    qy_pool_must_live(pool);
    qy_bump(&pool->info->slow_calls, 1);
    if (t->flags & QUARRY_TLSF_FIXED) return NULL;
    tlsf_block_t *b = t->open ? tlsf_grow_here(t, bytes) : NULL;
    if (b) return b;
    size_t need = bytes + QUARRY_TLSF_REGION_OVERHEAD;
    size_t held = atomic_load_explicit(&pool->info->held, memory_order_relaxed);
    qy_pool_chunk_t chunk;
    if (!qy_chunk_get(pool, need, qy_min(qy_max(t->chunk_bytes, held / 4), TLSF_MAX / 2), TLSF_GRAIN, &chunk))
        return NULL;
    if (!chunk.zero) return install(t, chunk.base, chunk.bytes, SIZE_MAX, true);
    b = install(t, chunk.base, chunk.bytes, qy_max(need, TLSF_STEP), true);
    tell_clean(t, (char *)b, tlsf_region_of(b));
    close_lesser(t, tlsf_region_of(b));
    return b;
}

// One empty region is kept, the larger one, so that a block that comes and goes at the edge costs no request each time.
void qy_tlsf_region_emptied(tlsf_t *t, tlsf_block_t *first) {
    tlsf_region_t *r = tlsf_region_of(first), *less = t->spare;
    qy_bump(&t->pool.info->slow_calls, 1);
    if (!r->grown || (t->flags & QUARRY_TLSF_KEEP)) return;
    t->spare = r;
    if (!less) return;
    if (less->given > r->given) {
        t->spare = less;
        less = r;
    }
    uninstall(t, less);
    qy_chunk_put(&t->pool, less->base, less->given);
}

// ---- regions of the caller ----------------------------------------------------------------------------------

static int refuse(int error) {
    errno = error;
    return -1;
}

static bool tlsf_region_fits(const void *buffer, size_t bytes) {
    uintptr_t p = (uintptr_t)buffer, end;
    return buffer && bytes <= TLSF_MAX && !__builtin_add_overflow(p, bytes, &end) &&
           qy_round_down(end, TLSF_GRAIN) > qy_round_up(p, TLSF_GRAIN) &&
           qy_round_down(end, TLSF_GRAIN) - qy_round_up(p, TLSF_GRAIN) >= TLSF_MIN_REGION;
}

static bool overlaps(const tlsf_t *t, const void *buffer, size_t bytes) {
    uintptr_t p = (uintptr_t)buffer;
    for (const tlsf_region_t *r = t->regions; r; r = r->next)
        if (p < (uintptr_t)r->base + r->given && (uintptr_t)r->base < p + bytes) return true;
    return false;
}

int quarry_tlsf_add_region(quarry_pool_t *pool, void *buffer, size_t bytes) {
    tlsf_t *t = (tlsf_t *)pool;
    qy_pool_must_live(pool);
    if (!tlsf_region_fits(buffer, bytes)) return refuse(EINVAL);
    tlsf_lock(t);
    bool taken = overlaps(t, buffer, bytes);
    if (!taken) {
        install(t, buffer, bytes, SIZE_MAX, false);
        TLSF_ASSERT_SOUND(t);
        atomic_fetch_add_explicit(&t->lent, bytes, memory_order_relaxed);
        qy_pool_trace_held(pool);
    }
    tlsf_unlock(t);
    return taken ? refuse(EINVAL) : 0;
}

int quarry_tlsf_remove_region(quarry_pool_t *pool, void *buffer) {
    tlsf_t *t = (tlsf_t *)pool;
    qy_pool_must_live(pool);
    tlsf_lock(t);
    tlsf_region_t *r = t->regions;
    while (r && (r->base != buffer || r->grown)) r = r->next;
    int error = !r ? EINVAL : tlsf_region_is_empty(r) ? 0
                                                      : EBUSY;
    if (!error) {
        uninstall(t, r);
        TLSF_ASSERT_SOUND(t);
        atomic_fetch_sub_explicit(&t->lent, r->given, memory_order_relaxed);
        qy_pool_trace_held(pool);
    }
    tlsf_unlock(t);
    return error ? refuse(error) : 0;
}

// ---- life -----------------------------------------------------------------------------------------------------

void qy_tlsf_destroy(quarry_pool_t *pool) {
    tlsf_t *t = (tlsf_t *)pool;
    qy_pool_retire(pool);
    qy_pool_trace_close(pool);
    qy_observe_close(pool);
    for (tlsf_region_t *r = t->regions, *next; r; r = next) {
        next = r->next;
        if (r->grown) qy_chunk_put(pool, r->base, r->given);
    }
    qy_pool_drop(pool);
}

quarry_pool_t *quarry_tlsf_create(const quarry_tlsf_options_t *options) {
    static const quarry_tlsf_options_t none;
    const quarry_tlsf_options_t *o = options ? options : &none;
    bool buffer = o->buffer || o->buffer_bytes;
    if ((o->flags & ~(QUARRY_TLSF_LOCK | QUARRY_TLSF_FIXED | QUARRY_TLSF_KEEP)) ||
        (buffer && !tlsf_region_fits(o->buffer, o->buffer_bytes))) {
        errno = EINVAL;
        return NULL;
    }
    bool lock = o->flags & QUARRY_TLSF_LOCK;
    tlsf_t *t = qy_pool_new(lock ? &qy_tlsf_locked_ops : &qy_tlsf_ops, sizeof *t, &o->pool);
    if (!t) return NULL;
    if (t->pool.mode) t->pool.ops = lock ? &qy_tlsf_observed_locked_ops : &qy_tlsf_observed_ops;
    t->secret = qy_os_random();
    t->flags = o->flags;
    t->chunk_bytes = o->chunk_bytes ? qy_min(o->chunk_bytes, TLSF_MAX / 2) : CHUNK_BYTES;
    if (buffer) {
        install(t, o->buffer, o->buffer_bytes, SIZE_MAX, false);
        atomic_store_explicit(&t->lent, o->buffer_bytes, memory_order_relaxed);
        qy_pool_trace_held(&t->pool);
    }
    qy_pool_ready(&t->pool);
    return &t->pool;
}
