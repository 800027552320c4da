// SPDX-License-Identifier: MIT
// run.c: objects of 64 KiB to 1 MiB: consecutive units of a chunk. A run of a first-class heap is on
// that heap's list of spans; others are on none: their descriptor hangs on their units.
#include "heap/chunk.h"
#include "heap/heap.h"
#include "heap/large.h"
#include "heap/map.h"
#include "heap/meta.h"
#include "heap/purge.h"
#include "heap/slab.h"
#include "os/os.h"
#include "rt/diag.h"

#include <string.h>

static _Atomic size_t run_count, run_live, run_mapped;

size_t qy_run_usable(const qy_slab_t *s) { return qy_min(qy_round_up(s->size, 4096), (size_t)s->units << QY_UNIT_SHIFT); }

static void account(const qy_slab_t *s, bool add) {
    size_t live = qy_run_usable(s), mapped = (size_t)s->units << QY_UNIT_SHIFT;
    if (add) {
        atomic_fetch_add_explicit(&run_live, live, memory_order_relaxed);
        atomic_fetch_add_explicit(&run_mapped, mapped, memory_order_relaxed);
    } else {
        atomic_fetch_sub_explicit(&run_live, live, memory_order_relaxed);
        atomic_fetch_sub_explicit(&run_mapped, mapped, memory_order_relaxed);
    }
}

void *qy_run_alloc(qy_heap_t *h, size_t align, size_t n, bool *ret_fresh) {
    unsigned count = (unsigned)((n + QY_UNIT - 1) >> QY_UNIT_SHIFT);
    if (h && h->limit && h->held_bytes + ((size_t)count << QY_UNIT_SHIFT) > h->limit) return NULL;
    qy_slab_t *s = qy_meta_slab_new();
    if (!s) return NULL;
    qy_units_t u;
    if (!qy_units_take(count, (unsigned)qy_max(1, align >> QY_UNIT_SHIFT), &u)) {
        qy_meta_slab_delete(s);
        return NULL;
    }
    s->kind = QY_SPAN_RUN;
    s->list = QY_LIST_NONE;
    s->units = (uint16_t)count;
    s->base = u.chunk->base + u.first * QY_UNIT;
    s->size = n;
    atomic_store_explicit(&s->heap, h, memory_order_relaxed);
    for (unsigned i = 0; i < count; i++) atomic_store_explicit(&u.chunk->span[u.first + i], s, memory_order_release);
    if (h) {
        qy_span_enter(h, s);
        h->nruns++;
        h->held_bytes += (size_t)count << QY_UNIT_SHIFT;
    }
    atomic_fetch_add_explicit(&run_count, 1, memory_order_relaxed);
    account(s, true);
    *ret_fresh = u.dirty == 0;
    return s->base;
}

// The descriptor was taken off its first unit by the caller.
static void release(qy_chunk_t *chunk, qy_slab_t *s) {
    unsigned first = (unsigned)((size_t)(s->base - chunk->base) >> QY_UNIT_SHIFT), n = s->units;
    for (unsigned i = 1; i < n; i++) atomic_store_explicit(&chunk->span[first + i], NULL, memory_order_relaxed);
    account(s, false);
    atomic_fetch_sub_explicit(&run_count, 1, memory_order_relaxed);
    qy_meta_slab_delete(s);
    qy_units_give(chunk, first, n, qy_bits_run(0, n));
    qy_purge_wanted();
}

static bool claim(qy_chunk_t *chunk, qy_slab_t *s) {
    qy_slab_t *expected = s;
    return atomic_compare_exchange_strong(&chunk->span[(size_t)(s->base - chunk->base) >> QY_UNIT_SHIFT], &expected, &qy_span_freed);
}

void qy_run_release(qy_heap_t *h, qy_chunk_t *chunk, qy_slab_t *s) {
    qy_span_leave(h, s);
    h->nruns--;
    h->held_bytes -= (size_t)s->units << QY_UNIT_SHIFT;
    release(chunk, s);
}

void qy_run_free(qy_chunk_t *chunk, qy_slab_t *s) {
    qy_heap_t *h = atomic_load_explicit(&s->heap, memory_order_relaxed);
    char *base = s->base;
    if (h) qy_heap_lock(h);
    // Of two threads that free the same run one loses here and is told.
    if (!claim(chunk, s)) qy_fatal(QY_FAULT_DOUBLE_FREE, base, "large object");
    if (h) {
        qy_run_release(h, chunk, s);
        qy_heap_unlock(h);
    } else {
        release(chunk, s);
    }
}

bool qy_run_resize(qy_chunk_t *chunk, qy_slab_t *s, size_t n) {
    if (n <= QY_MEDIUM_MAX || n > QY_RUN_MAX) return false;
    unsigned first = (unsigned)((size_t)(s->base - chunk->base) >> QY_UNIT_SHIFT);
    unsigned have = s->units, want = (unsigned)((n + QY_UNIT - 1) >> QY_UNIT_SHIFT);
    qy_heap_t *h = atomic_load_explicit(&s->heap, memory_order_relaxed);
    bool ok = true;
    if (h) qy_heap_lock(h);
    account(s, false);
    if (want > have) {
        qy_bits_t dirty;
        size_t more = (size_t)(want - have) << QY_UNIT_SHIFT;
        ok = !(h && h->limit && h->held_bytes + more > h->limit) && qy_units_extend(chunk, first, have, want - have, &dirty);
        if (ok)
            for (unsigned i = have; i < want; i++) atomic_store_explicit(&chunk->span[first + i], s, memory_order_release);
        if (ok && h) h->held_bytes += more;
    } else if (want < have) {
        for (unsigned i = want; i < have; i++) atomic_store_explicit(&chunk->span[first + i], NULL, memory_order_relaxed);
        qy_units_give(chunk, first + want, have - want, qy_bits_run(0, have - want));
        qy_purge_wanted();
        if (h) h->held_bytes -= (size_t)(have - want) << QY_UNIT_SHIFT;
    }
    if (ok) {
        s->units = (uint16_t)want;
        s->size = n;
    }
    account(s, true);
    if (h) qy_heap_unlock(h);
    return ok;
}

void qy_run_stats(size_t *ret_count, size_t *ret_live, size_t *ret_slack) {
    *ret_count = atomic_load_explicit(&run_count, memory_order_relaxed);
    *ret_live = atomic_load_explicit(&run_live, memory_order_relaxed);
    *ret_slack = atomic_load_explicit(&run_mapped, memory_order_relaxed) - *ret_live;
}

void *qy_large_alloc(qy_heap_t *h, size_t align, size_t n, bool *ret_fresh) {
    if (h && h->kind != QY_HEAP_FIRST_CLASS) h = NULL;
    if (n <= QY_RUN_MAX && align <= QY_RUN_MAX) return qy_run_alloc(h, align, n, ret_fresh);
    return qy_huge_alloc(h, align, n, ret_fresh);
}
