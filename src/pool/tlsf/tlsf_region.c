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
        high = qy_max(high, (uintptr_t)r + r->bytes);
    }
    t->low = t->regions ? low : 0;
    t->high = high;
}

// One free block from the record to the end. `bytes` was checked: the region is neither too small nor too large.
static tlsf_block_t *install(tlsf_t *t, void *base, size_t given, bool grown) {
    tlsf_region_t *r = qy_ptr_up(base, TLSF_GRAIN);
    size_t bytes = qy_round_down((uintptr_t)base + given - (uintptr_t)r, TLSF_GRAIN);
    *r = (tlsf_region_t){.next = t->regions, .base = base, .given = given, .bytes = bytes, .grown = grown};
    if (r->next) r->next->prev = r;
    t->regions = r;
    find_bounds(t);
    tlsf_block_t *first = tlsf_region_first(r), *end = tlsf_region_end(r);
    tlsf_set_head(t, first, (size_t)((char *)end - (char *)first), FLAG_FREE | FLAG_FIRST);
    tlsf_set_head(t, end, 0, FLAG_END | FLAG_PREV_FREE);
    end->prev = first;
    qy_tlsf_enlist(t, first);
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
    find_bounds(t);
}

// ---- growing from the parent, and back --------------------------------------------------------------------

// A quarter of what there is: the number of regions stays a logarithm of the pool's size.
tlsf_block_t *qy_tlsf_grow(tlsf_t *t, size_t bytes) {
    quarry_pool_t *pool = &t->pool;
    TLSF_NEEDS_LOCK(t);
    qy_pool_must_live(pool);
    qy_bump(&pool->info->slow_calls, 1);
    if (t->flags & QUARRY_TLSF_FIXED) return NULL;
    size_t need = bytes + QUARRY_TLSF_REGION_OVERHEAD;
    size_t held = atomic_load_explicit(&pool->info->held, memory_order_relaxed);
    qy_pool_chunk_t chunk;
    if (!qy_chunk_get(pool, need, qy_min(qy_max(t->chunk_bytes, held / 4), TLSF_MAX / 2), TLSF_GRAIN, &chunk))
        return NULL;
    return install(t, chunk.base, chunk.bytes, true);
}

// One empty region is kept, the larger one, so that a block that comes and goes at the edge costs no request each time.
void qy_tlsf_region_emptied(tlsf_t *t, tlsf_block_t *first) {
    tlsf_region_t *r = tlsf_region_of(first), *less = t->spare;
    qy_bump(&t->pool.info->slow_calls, 1);
    if (!r->grown || (t->flags & QUARRY_TLSF_KEEP)) return;
    t->spare = r;
    if (!less) return;
    if (less->bytes > r->bytes) {
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
        install(t, buffer, bytes, false);
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
        install(t, o->buffer, o->buffer_bytes, false);
        atomic_store_explicit(&t->lent, o->buffer_bytes, memory_order_relaxed);
        qy_pool_trace_held(&t->pool);
    }
    qy_pool_ready(&t->pool);
    return &t->pool;
}
