// SPDX-License-Identifier: MIT
// fork.c: see fork.h.
#include "heap/fork.h"

#include <pthread.h>

#include "heap/cache.h"
#include "heap/chunk.h"
#include "heap/heap.h"
#include "heap/large.h"
#include "heap/map.h"
#include "heap/meta.h"
#include "heap/purge.h"

void qy_heap_lock(qy_heap_t *h) { qy_lock_take(&h->lock); }
void qy_heap_unlock(qy_heap_t *h) { qy_lock_drop(&h->lock); }

// Order: purge, heaps list, every heap, pages, huge, metadata. New heaps need the list's lock.
static void each_lock(void (*fn)(qy_lock_t *)) {
    fn(qy_purge_lock());
    fn(qy_heaps_lock());
    for (qy_heap_t *h = qy_heap_first(); h; h = h->next) fn(&h->lock);
    fn(qy_units_lock());
    fn(qy_huge_lock());
    fn(qy_map_lock());
    fn(qy_thread_lock());
    fn(qy_meta_lock());
}

static void prepare(void) { each_lock(qy_lock_freeze); }
static void parent(void) { each_lock(qy_lock_thaw); }

static void child(void) {
    qy_purge_after_fork();
    qy_heaps_after_fork(QY_CACHE->thread ? QY_CACHE->thread->heap : NULL);
    each_lock(qy_lock_reset);
}

void qy_fork_register(void) { pthread_atfork(prepare, parent, child); }
