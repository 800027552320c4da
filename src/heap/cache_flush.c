// SPDX-License-Identifier: MIT
// cache_flush.c: see cache_flush.h.
#include "heap/cache_flush.h"

#include "heap/cache.h"
#include "heap/depot.h"
#include "heap/heaps.h"
#include "heap/lists.h"
#include "heap/moved.h"
#include "heap/remote.h"
#include "heap/sizeclass.h"
#include "heap/slab.h"
#include "heap/tiny.h"
#include "heap/waste.h"

void qy_cache_flush_list(qy_thread_t *t, qy_block_t *list) {
    if (!list) return;
    qy_heap_lock(t->heap);
    size_t bytes = qy_slab_put_list(t->heap, list);
    qy_waste_in_slabs(t->heap);
    qy_heap_unlock(t->heap);
    qy_moved(t, bytes);
}

void qy_cache_give_up(qy_thread_t *t, unsigned c, qy_block_t *list) {
    if (!list) return;
    qy_heap_lock(t->heap);
    // The depot's lists are of the usual length, and where there are many threads it would be as much as their caches.
    if (qy_budget_is_short() || !qy_depot_put(t->heap, c, list)) qy_slab_put_list(t->heap, list);
    qy_waste_in_slabs(t->heap);
    qy_heap_unlock(t->heap);
    qy_moved(t, (size_t)qy_class_limit[c] * qy_class_size[c]);
}

void qy_thread_flush(qy_thread_t *t) {
    for (unsigned c = 1; c < QY_CLASS_COUNT; c++) {
        if (qy_lists_are_empty(t, c)) continue;
        qy_block_t *prev, *head = qy_lists_empty(t, c, &prev);
        qy_cache_flush_list(t, head);
        qy_cache_flush_list(t, prev);
    }
    qy_remote_flush(t);
    qy_heap_lock(t->heap);
    if (t->tiny_slab) qy_tiny_leave(t);
    qy_remote_drain(t->heap);
    qy_depot_home(t->heap);
    qy_heap_unlock(t->heap);
}
