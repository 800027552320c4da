// SPDX-License-Identifier: MIT
// lists.c: see lists.h.
#include "heap/lists.h"

#include <string.h>

#include "heap/cache.h"
#include "heap/depot.h"
#include "heap/draw.h"
#include "heap/heaps.h"
#include "heap/link.h"
#include "heap/remote.h"
#include "heap/sizeclass.h"
#include "heap/slab.h"
#include "heap/tiny.h"
#include "heap/waste.h"
#include "rt/heuristics.h"
#include "rt/opts.h"

// As much as may be parked with a heap: what walking it costs is little beside what it took to get that much into the
// lists.
#define PARKED_MOST ((size_t)128 << 10)
// Of small classes only: lists of larger blocks are short, and each of many idle heaps would keep a slab of up to 256
// KiB for them.
#define PARKED_CLASSES (QY_CLASS_SMALL + 1)
_Static_assert(PARKED_CLASSES <= 65, "has_parked is 64 bits");

#define PERIOD_PART 16u  // of the bytes in slabs, where that is more than a period has otherwise

static uint64_t bit_of(unsigned c) { return UINT64_C(1) << (c - 1); }

bool qy_lists_are_empty(const qy_thread_t *t, unsigned c) { return !qy_cache_list(&t->cache, c) && !t->prev[c]; }

qy_block_t *qy_lists_empty(qy_thread_t *t, unsigned c, qy_block_t **ret_prev) {
    qy_block_t *head = qy_cache_list(&t->cache, c);
    *ret_prev = t->prev[c];
    qy_cache_set_list(&t->cache, c, t->prev[c] = NULL);
    // A generation begins: what is pushed from here on is counted, and a short list is not taken for a full one.
    qy_draw_set_room(t, c, qy_budget_limit(c));
    t->merged[c] = 0;
    return head;
}

// The first class from c on of which the heap has slabs; QY_CLASS_COUNT if there is none.
static unsigned used_from(const qy_heap_t *h, unsigned c) {
    for (unsigned w = c / 64; w < QY_CLASS_COUNT / 64; w++, c = w * 64) {
        uint64_t word = h->used[w] & UINT64_MAX << c % 64;
        if (word) return w * 64 + (unsigned)__builtin_ctzll(word);
    }
    return QY_CLASS_COUNT;
}

// Of the lists of class c at most so many blocks go home, of the older one first. Returns how many more might have.
QY_NOINLINE static unsigned send_some_home(qy_heap_t *h, qy_thread_t *t, unsigned c, unsigned most) {
    QY_NEEDS(&h->lock);
    qy_block_t *prev, *head = qy_lists_empty(t, c, &prev);
    if (prev) most -= qy_slab_put_some(h, c, &prev, most);
    if (head && most) most -= qy_slab_put_some(h, c, &head, most);
    if (!prev && !head) return most;
    t->prev[c] = prev;
    qy_cache_set_list(&t->cache, c, head);
    t->merged[c] = 1;  // nobody knows how long it is: it is looked at when a generation was pushed, and not parked
    return 0;
}

bool qy_lists_sweep(qy_thread_t *t, unsigned end) {
    qy_heap_t *h = t->heap;
    unsigned left = QY_LISTS_SWEEP, c;
    qy_heap_lock(h);
    for (c = used_from(h, t->swept); c < end; c = used_from(h, c + 1)) {
        bool idle = !t->busy[c];
        t->busy[c] = false;
        if (!idle || qy_lists_are_empty(t, c)) continue;
        if (!(left = send_some_home(h, t, c, left))) break;
    }
    t->swept = (uint8_t)qy_min(c, end);
    t->period_least = h->slab_bytes / PERIOD_PART;
    qy_waste_in_slabs(h);
    qy_heap_unlock(h);
    return c < end;
}

// ---- parked with the heap -----------------------------------------------------------------------

// May the list of this class be parked? Not where it has been a whole generation, or is many (qy_free_full): nobody
// knows how many blocks there are. What came from a slab is known (lent), and behind a generation that was moved to
// prev a list begins anew.
static bool may_park(const qy_thread_t *t, unsigned c) {
    return c < PARKED_CLASSES && !(t->merged[c] & ~QY_BEGAN_LONG) && !t->balanced[c];
}

// Most that was pushed to the lists that may be parked: room counts pushes since they began or the thread did.
static size_t pushed(const qy_thread_t *t) {
    size_t bytes = 0;
    for (unsigned c = used_from(t->heap, 1); c < PARKED_CLASSES; c = used_from(t->heap, c + 1))
        if (t->cache.head[c] != &qy_link_end && may_park(t, c))
            bytes += (size_t)(qy_class_limit[c] + 1u - qy_draw_room(t, c)) * qy_class_size[c];
    return bytes;
}

size_t qy_lists_leave(qy_thread_t *t) {
    qy_cache_t *cache = &t->cache;
    qy_heap_t *h = t->heap;
    qy_remote_flush(t);
    qy_heap_lock(h);
    if (t->tiny_slab) qy_tiny_leave(t);
    qy_remote_drain(h);
    h->lent += pushed(t);
    // Who shares the heap may have lists of its own; they cannot be joined without walking one.
    bool park = QY_WITH(kept) && h->lent <= PARKED_MOST && !qy_opts.arenas;
    if (!park) h->lent = 0;
    qy_depot_home(h);
    size_t bytes = 0;
    for (unsigned c = used_from(h, 1); c < QY_CLASS_COUNT; c = used_from(h, c + 1)) {
        qy_block_t *head = cache->head[c], *prev = t->prev[c];
        cache->head[c] = &qy_link_end;
        t->prev[c] = NULL;
        if (prev) bytes += qy_slab_put_list(h, prev);
        if (head == &qy_link_end) continue;
        if (park && may_park(t, c)) {
            h->has_parked |= bit_of(c);
            h->parked[c] = head;
        } else {
            bytes += qy_slab_put_list(h, head);
        }
    }
    if (!h->has_parked) h->lent = 0;
    qy_waste_in_slabs(h);
    qy_heap_unlock(h);
    return bytes;
}

void qy_lists_inherit(qy_thread_t *t) {
    QY_NEEDS(&t->heap->lock);
    qy_cache_t *cache = &t->cache;
    qy_heap_t *h = t->heap;
    for (unsigned c = 0; c < QY_CLASS_COUNT; c++) cache->head[c] = &qy_link_end;
    qy_tiny_mend(h);
    for (; h->has_parked; h->has_parked &= h->has_parked - 1) {
        unsigned c = 1 + (unsigned)__builtin_ctzll(h->has_parked);
        cache->head[c] = h->parked[c];
    }
}

void qy_lists_unpark_class(qy_heap_t *h, unsigned c) {
    QY_NEEDS(&h->lock);
    qy_depot_home_class(h, c);
    if (c >= PARKED_CLASSES || !(h->has_parked & bit_of(c))) return;
    h->has_parked &= ~bit_of(c);
    qy_slab_put_list(h, h->parked[c]);
}

void qy_lists_unpark(qy_heap_t *h) {
    QY_NEEDS(&h->lock);
    qy_depot_home(h);
    if (!h->has_parked) return;
    while (h->has_parked) qy_lists_unpark_class(h, 1 + (unsigned)__builtin_ctzll(h->has_parked));
    h->lent = 0;
}
