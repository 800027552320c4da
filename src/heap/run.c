// SPDX-License-Identifier: MIT
// run.c: objects of 64 KiB to 128 MiB: consecutive units, of a chunk or of several that lie side by side. A run of a
// first-class heap is on that heap's list of spans; others are on none: their descriptor hangs on their units.
#include "heap/clear.h"
#include "heap/heaps.h"
#include "heap/waste.h"
#include "heap/run.h"
#include "heap/sizeclass.h"
#include "heap/slab.h"
#include "pages/chunk.h"
#include "pages/map.h"
#include "os/os.h"
#include "pages/meta.h"
#include "pages/purging.h"
#include "rt/diag.h"
#include "rt/heuristics.h"

#include <string.h>

static _Atomic size_t run_count, run_live, run_mapped;

// Enter s (or NULL) for the units [from, to) of the run that begins at unit `first` of `chunk`.
static void set_span(qy_chunk_t *chunk, unsigned first, unsigned from, unsigned to, qy_slab_t *s) {
    for (unsigned i = first + from; i < first + to;) {
        char *base = chunk->record.base + (size_t)(i / QY_CHUNK_UNITS) * QY_CHUNK;
        qy_chunk_t *c = i < QY_CHUNK_UNITS ? chunk : qy_map_chunk(base);
        unsigned end = (unsigned)qy_min((i / QY_CHUNK_UNITS + 1) * QY_CHUNK_UNITS, first + to);
        for (; i < end; i++) atomic_store_explicit(&c->span[i % QY_CHUNK_UNITS], s, memory_order_release);
    }
}

// Bytes before the object; sizeclass.h says what for. It has to fit into what the last unit leaves over; other colours
// than those of blocks.
#define COLOUR_MOST (2 * QY_COLOUR_MAX)
static size_t colour(const char *base, size_t align, size_t n, unsigned count) {
    if (!QY_WITH(colour) || n > QY_RUN_MAX || align > QY_CACHE_LINE ||
        ((size_t)count << QY_UNIT_SHIFT) - n < COLOUR_MOST) return 0;
    uint32_t unit = (uint32_t)((uintptr_t)base >> QY_UNIT_SHIFT);
    // whatever the distance between runs of one size
    return QY_COLOUR_MAX + ((unit * UINT32_C(0x9E3779B1) >> 28) + 1) * QY_CACHE_LINE;
}

size_t qy_run_usable(const qy_slab_t *s) {
    return qy_min(qy_round_up(s->size, 4096), ((size_t)s->units << QY_UNIT_SHIFT) - (size_t)(s->origin - s->base));
}

size_t qy_run_mapped(void) { return atomic_load_explicit(&run_mapped, memory_order_relaxed); }

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

static unsigned units_for(size_t n) {
    size_t beyond = n > QY_LONG_USUAL ? 2 * qy_os_page_size() : 0;  // whatever part of a page n ends in
    return (unsigned)((n + beyond + QY_UNIT - 1) >> QY_UNIT_SHIFT);
}

void *qy_run_alloc(qy_heap_t *h, size_t align, size_t n, bool *ret_fresh) {
    unsigned count = units_for(n);
    if (h && h->limit && h->held_bytes + ((size_t)count << QY_UNIT_SHIFT) > h->limit) return NULL;
    qy_slab_t *s = qy_span_new();
    if (!s) return NULL;
    qy_units_t u = {.first = 0};
    bool dirty;
    unsigned multiple = (unsigned)qy_max(1, align >> QY_UNIT_SHIFT);
    bool ok = count > QY_CHUNK_UNITS ? qy_units_take_long(count, &u.chunk, &dirty) : qy_units_take(count, multiple, &u);
    if (!ok) {
        qy_span_delete(s);
        return NULL;
    }
    if (count <= QY_CHUNK_UNITS) dirty = u.dirty != 0;
    s->kind = QY_SPAN_RUN;
    s->list = QY_LIST_NONE;
    s->zeroed = *ret_fresh && n > QY_RUN_MAX;
    s->units = (uint16_t)count;
    s->base = u.chunk->record.base + u.first * QY_UNIT;
    // Where units are counted up to a limit, it may not cost one when the object grows.
    s->origin = s->base + (h && h->limit ? 0 : colour(s->base, align, n, count));
    s->size = n;
    s->made = qy_os_now_coarse_ns();
    atomic_store_explicit(&s->heap, h, memory_order_relaxed);
    set_span(u.chunk, u.first, 0, count, s);
    if (h) {
        qy_span_enter(h, s);
        h->nruns++;
        h->held_bytes += (size_t)count << QY_UNIT_SHIFT;
    }
    atomic_fetch_add_explicit(&run_count, 1, memory_order_relaxed);
    account(s, true);
    *ret_fresh = !dirty;
    return s->origin;
}

// ---- its pages, when it ends ------------------------------------------------------------------
//
// Free pages wait until the purge finds them old, some time later. What lived for long does not wait. To have its pages
// anew costs little beside the time they were in use. While they waited, the program might reach the most memory it
// ever has, with pages in it that serve nobody. That is wrong where many runs live for just so long: so there is only
// so much of it per second. A page that nobody has again costs next to nothing, least of all one that was never
// touched, which cannot be told. So most of it is paid for when the pages are taken again, if ever.
//
// Nor does what is twice as large as any that went for this reason before, if it is little beside all runs. A program
// that needs one large run for a moment, at its start say, may never need another. If it does, it has had that one
// anew.

#define LONG UINT64_C(100000000)  // ns; a page that is had anew costs one to three microseconds

_Atomic size_t qy_run_largest_first;

// May its pages go at once? Then *ret_event says why.
static bool may_go(const qy_slab_t *s, size_t bytes, qy_purging_event_t *ret_event) {
    size_t all = atomic_load_explicit(&run_mapped, memory_order_relaxed);
    if (QY_WITH(early) && qy_os_now_coarse_ns() - s->made >= LONG)
        return qy_purging_may(*ret_event = QY_PURGING_RUN_OLD, bytes, all) != 0;
    size_t largest = atomic_load_explicit(&qy_run_largest_first, memory_order_relaxed);
    if (!QY_WITH(early) || bytes < 2 * largest) return false;
    if (qy_purging_may(*ret_event = QY_PURGING_RUN_FIRST, bytes, all) < bytes) return false;
    atomic_store_explicit(&qy_run_largest_first, bytes, memory_order_relaxed);
    return true;
}

// n units from the first-th of this chunk on, of run s, come back to the page layer. `touched`: whether they may be.
// Waits for no lock but the page layer's.
static void give(const qy_slab_t *s, qy_chunk_t *chunk, unsigned first, unsigned n, bool touched) {
    char *base = chunk->record.base + (size_t)first * QY_UNIT;
    size_t bytes = (size_t)n * QY_UNIT;
    qy_purging_event_t event = QY_PURGING_EVENTS;
    // Only whole pages can go; they may be larger than a unit.
    bool may = touched && (((uintptr_t)base | bytes) & (qy_os_page_size() - 1)) == 0 && may_go(s, bytes, &event);
    bool locked = may && qy_lock_try(qy_purging_lock()), gone = locked && qy_purging_pages(base, bytes);
    if (event == QY_PURGING_RUN_OLD && gone) qy_purging_pay(event, bytes);
    else if (event == QY_PURGING_RUN_OLD && locked) qy_purging_refused(event);
    if (gone) qy_units_gone(chunk, first, n, event == QY_PURGING_RUN_OLD);
    qy_units_give_long(chunk, first, n, touched && !gone);
    if (locked) qy_lock_drop(qy_purging_lock());
}

// What a program did to the pages of a mapping (mprotect, mlock, madvise, a file in their place) ends with it. A run
// above QY_LONG_USUAL stands for a mapping, so it must end there, too. The kernel splits a mapping where its parts
// differ, and the last page of the run is not the program's. So nothing was done if the run is one mapping, but for the
// chunks that are one each.
QY_COLD static bool is_as_made(const qy_slab_t *s) {
    char *end = s->base + ((size_t)s->units << QY_UNIT_SHIFT);
    for (char *at = s->base, *to; at < end; at = to) {
        bool separate = qy_map_chunk(at)->separate;  // stays while its first unit is taken
        for (to = at + QY_CHUNK; to < end && !separate && !qy_map_chunk(to)->separate; to += QY_CHUNK) {}
        to = (uintptr_t)to < (uintptr_t)end ? to : end;
        if (!qy_os_is_one_mapping(at, (size_t)(to - at))) return false;
    }
    return true;
}

// Are the n units from the first-th on perhaps touched, when they come back?
QY_COLD static bool long_may_be_touched(const qy_slab_t *s, unsigned first, unsigned n) {
    if (is_as_made(s)) return true;
    return !qy_os_renew(s->base + (size_t)first * QY_UNIT, (size_t)n * QY_UNIT);
}

QY_INLINE bool may_be_touched(const qy_slab_t *s, unsigned first, unsigned n) {
    return (size_t)s->units << QY_UNIT_SHIFT <= QY_LONG_USUAL || long_may_be_touched(s, first, n);
}

// The descriptor was taken off its first unit by the caller.
static void run_release(qy_chunk_t *chunk, qy_slab_t *s, bool dirty) {
    unsigned first = (unsigned)((size_t)(s->base - chunk->record.base) >> QY_UNIT_SHIFT), n = s->units;
    if (s->zeroed && dirty) qy_clear_learn(s->origin, s->size, false);
    set_span(chunk, first, 1, n, NULL);
    account(s, false);
    atomic_fetch_sub_explicit(&run_count, 1, memory_order_relaxed);
    give(s, chunk, first, n, dirty && may_be_touched(s, 0, n));
    qy_span_delete(s);
    qy_waste_of_pages();
}

static bool claim(qy_chunk_t *chunk, qy_slab_t *s) {
    qy_slab_t *expected = s;
    return atomic_compare_exchange_strong(&chunk->span[(size_t)(s->base - chunk->record.base) >> QY_UNIT_SHIFT],
        &expected, &qy_span_freed);
}

void qy_run_release(qy_heap_t *h, qy_chunk_t *chunk, qy_slab_t *s) {
    QY_NEEDS(&h->lock);
    qy_span_leave(h, s);
    h->nruns--;
    h->held_bytes -= (size_t)s->units << QY_UNIT_SHIFT;
    run_release(chunk, s, true);
}

void qy_run_free(qy_chunk_t *chunk, qy_slab_t *s) {
    qy_heap_t *h = atomic_load_explicit(&s->heap, memory_order_relaxed);
    char *object = s->origin;
    if (h) qy_heap_lock(h);
    // Of two threads that free the same run one loses here and is told.
    if (!claim(chunk, s)) qy_fatal(QY_FAULT_DOUBLE_FREE, object, "large object");
    if (h) {
        qy_run_release(h, chunk, s);
        qy_heap_unlock(h);
    } else {
        run_release(chunk, s, true);
    }
}

void qy_run_leave(qy_chunk_t *chunk, qy_slab_t *s) {
    char *object = s->origin;
    if (!claim(chunk, s)) qy_fatal(QY_FAULT_DOUBLE_FREE, object, "large object");
    run_release(chunk, s, false);
}

// The first `used` bytes of the object go to the begin of its units.
static void uncolour(qy_slab_t *s, size_t used) {
    if (s->origin == s->base) return;
    memmove(s->base, s->origin, used);
    s->origin = s->base;
}

void *qy_run_resize(qy_chunk_t *chunk, qy_slab_t *s, size_t n) {
    // Also to less than a run is made for: to drop the end of it is cheaper than to copy the rest, until half of what
    // stays is waste.
    if (n <= QY_UNIT || n > QY_LONG_MAX) return NULL;
    // A colour is for objects up to QY_RUN_MAX. Above, it would have to go when the pages move to a mapping of their
    // own (realloc.c), and the object is small now.
    size_t offset = n > QY_RUN_MAX ? 0 : (size_t)(s->origin - s->base), used = qy_run_usable(s);
    unsigned first = (unsigned)((size_t)(s->base - chunk->record.base) >> QY_UNIT_SHIFT);
    unsigned have = s->units, want = units_for(offset + n);
    qy_heap_t *h = atomic_load_explicit(&s->heap, memory_order_relaxed);
    bool ok = true;
    if (h) qy_heap_lock(h);
    bool touched = want >= have || may_be_touched(s, want, have - want);
    account(s, false);
    if (want > have) {
        size_t more = (size_t)(want - have) << QY_UNIT_SHIFT;
        ok = !(h && h->limit && h->held_bytes + more > h->limit) && qy_units_extend(chunk, first, have, want - have);
        if (ok) {
            set_span(chunk, first, have, want, s);
            if (h) h->held_bytes += more;
            s->made = qy_os_now_coarse_ns();  // its new pages may not be old when it ends
        }
    } else if (want < have) {
        set_span(chunk, first, want, have, NULL);
        if (h) h->held_bytes -= (size_t)(have - want) << QY_UNIT_SHIFT;
    }
    if (ok) {
        s->units = (uint16_t)want;
        s->size = n;
        if (n > QY_RUN_MAX) uncolour(s, qy_min(used, n));
    }
    account(s, true);
    if (want < have) {
        give(s, chunk, first + want, have - want, touched);
        qy_waste_of_pages();
    }
    char *object = s->origin;
    if (h) qy_heap_unlock(h);
    return ok ? object : NULL;
}

void qy_run_stats(size_t *ret_count, size_t *ret_live, size_t *ret_slack) {
    *ret_count = atomic_load_explicit(&run_count, memory_order_relaxed);
    *ret_live = atomic_load_explicit(&run_live, memory_order_relaxed);
    size_t mapped = atomic_load_explicit(&run_mapped, memory_order_relaxed);
    *ret_slack = mapped > *ret_live ? mapped - *ret_live : 0;  // read a moment apart
}
