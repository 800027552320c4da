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

// Order: purge, heaps list, every heap, pages, huge, map, thread records, metadata. The first lock
// is also what keeps two forking threads apart, so it is frozen first and let go last. No heap is
// made meanwhile: that needs the metadata lock, which is thawed last of all but the first.
static void all_but_first(void (*fn)(qy_lock_t *)) {
    fn(qy_heaps_lock());
    for (qy_heap_t *h = qy_heap_first(); h; h = h->next) fn(&h->lock);
    fn(qy_units_lock());
    fn(qy_huge_lock());
    fn(qy_map_lock());
    fn(qy_thread_lock());
    fn(qy_meta_lock());
}

static void prepare(void) {
    qy_lock_freeze(qy_purge_lock());
    all_but_first(qy_lock_freeze);
}

static void parent(void) {
    all_but_first(qy_lock_thaw);
    qy_lock_thaw(qy_purge_lock());
}

static void child(void) {
    qy_purge_after_fork();
    qy_heaps_after_fork(QY_CACHE->thread ? QY_CACHE->thread->heap : NULL);
    all_but_first(qy_lock_reset);
    qy_lock_reset(qy_purge_lock());
}

void qy_fork_register(void) { pthread_atfork(prepare, parent, child); }
