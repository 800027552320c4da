// SPDX-License-Identifier: MIT
// lists.c: see lists.h.
#include "heap/lists.h"

#include <string.h>

#include "heap/cache.h"
#include "heap/depot.h"
#include "heap/heap.h"
#include "heap/link.h"
#include "heap/purge.h"
#include "heap/remote.h"
#include "heap/sizeclass.h"
#include "heap/slab.h"
#include "heap/stats_page.h"
#include "rt/opts.h"

// As much as may be parked with a heap: what walking it costs is little beside what it took to get that much into the lists.
#define PARKED_MOST ((size_t)128 << 10)
// Of small classes only: lists of larger blocks are short, and each of many idle heaps would keep a slab of up to 256 KiB for them.
#define PARKED_CLASSES (QY_CLASS_SMALL + 1)

size_t qy_lists_home(qy_heap_t *h, qy_block_t *list) {
    size_t bytes = qy_slab_put_list(h, list);
    h->flushes++;
    return bytes;
}

void qy_cache_flush_list(qy_thread_t *t, qy_block_t *list) {
    if (!list) return;
    qy_heap_lock(t->heap);
    size_t bytes = qy_lists_home(t->heap, list);
    qy_purge_consider(t->heap);
    qy_heap_unlock(t->heap);
    qy_stats_moved(t, bytes);
}

void qy_cache_give_up(qy_thread_t *t, unsigned c, qy_block_t *list) {
    if (!list) return;
    qy_heap_lock(t->heap);
    if (!qy_depot_put(t->heap, c, list)) qy_lists_home(t->heap, list);
    qy_purge_consider(t->heap);
    qy_heap_unlock(t->heap);
    qy_stats_moved(t, (size_t)qy_class_limit[c] * qy_class_size[c]);
}

bool qy_lists_are_empty(const qy_thread_t *t, unsigned c) { return !qy_cache_list(t->cache, c) && !t->prev[c]; }

qy_block_t *qy_lists_empty(qy_thread_t *t, unsigned c, qy_block_t **ret_prev) {
    qy_block_t *head = qy_cache_list(t->cache, c);
    *ret_prev = t->prev[c];
    qy_cache_set_list(t->cache, c, t->prev[c] = NULL);
    // A generation begins: what is pushed from here on is counted, and a short list is not taken for a full one.
    t->cache->room[c] = (int16_t)qy_class_limit[c];
    t->merged[c] = 0;
    return head;
}

void qy_thread_flush(qy_thread_t *t) {
    for (unsigned c = 1; c < QY_CLASS_COUNT; c++) {
        qy_block_t *prev, *head = qy_lists_empty(t, c, &prev);
        qy_cache_flush_list(t, head);
        qy_cache_flush_list(t, prev);
    }
    qy_remote_flush(t);
    qy_heap_lock(t->heap);
    qy_remote_drain(t->heap);
    qy_depot_home(t->heap);
    qy_heap_unlock(t->heap);
}

// ---- parked with the heap -----------------------------------------------------------------------

// May the list of this class be parked? Not where a generation of blocks filled up (qy_free_full): nobody knows how many there are.
// What came from a slab is known (lent).
static bool may_park(const qy_thread_t *t, unsigned c) {
    return c < PARKED_CLASSES && !t->prev[c] && !(t->merged[c] & ~QY_BEGAN_LONG) && !t->look[c];
}

// Most that was pushed to the lists that may be parked: room counts pushes since they were empty or the thread began.
static size_t pushed(const qy_thread_t *t) {
    size_t bytes = 0;
    for (unsigned c = 1; c < PARKED_CLASSES; c++)
        if (t->cache->head[c] != &qy_link_end && may_park(t, c)) bytes += (size_t)(qy_class_limit[c] - t->cache->room[c] + 1) * qy_class_size[c];
    return bytes;
}

void qy_lists_leave(qy_thread_t *t) {
    qy_cache_t *cache = t->cache;
    qy_heap_t *h = t->heap;
    qy_remote_flush(t);
    qy_heap_lock(h);
    qy_remote_drain(h);
    h->lent += pushed(t);
    // Who shares the heap may have lists of its own; they cannot be joined without walking one.
    bool park = h->lent <= PARKED_MOST && !qy_opts.arenas;
    if (!park) h->lent = 0;
    qy_depot_home(h);
    size_t bytes = 0;
    for (unsigned c = 0; c < QY_CLASS_COUNT; c++) {
        qy_block_t *head = cache->head[c], *prev = t->prev[c];
        bool stays = park && may_park(t, c);
        if (c < PARKED_CLASSES) h->parked[c] = stays ? head : &qy_link_end;
        if (!stays && head != &qy_link_end) bytes += qy_lists_home(h, head);
        if (prev) bytes += qy_lists_home(h, prev);
        cache->head[c] = &qy_link_end;
        t->prev[c] = NULL;
    }
    h->has_parked = park;
    qy_purge_consider(h);
    qy_heap_unlock(h);
    qy_stats_moved(t, bytes);
}

void qy_lists_inherit(qy_thread_t *t) {
    qy_cache_t *cache = t->cache;
    qy_heap_t *h = t->heap;
    unsigned first = 0;
    if (h->has_parked) {
        memcpy(cache->head, h->parked, sizeof h->parked);
        first = PARKED_CLASSES;
        h->has_parked = false;
    }
    for (unsigned c = first; c < QY_CLASS_COUNT; c++) cache->head[c] = &qy_link_end;
}

void qy_lists_unpark_class(qy_heap_t *h, unsigned c) {
    qy_depot_home_class(h, c);
    if (!h->has_parked || c >= PARKED_CLASSES || h->parked[c] == &qy_link_end) return;
    qy_block_t *list = h->parked[c];
    h->parked[c] = &qy_link_end;
    qy_lists_home(h, list);
}

void qy_lists_unpark(qy_heap_t *h) {
    qy_depot_home(h);
    if (!h->has_parked) return;
    for (unsigned c = 1; c < PARKED_CLASSES; c++) qy_lists_unpark_class(h, c);
    h->has_parked = false;
    h->lent = 0;
}
