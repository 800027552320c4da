// SPDX-License-Identifier: MIT
// reclaim.c: see reclaim.h.
#include "heap/reclaim.h"

#include "heap/cache.h"
#include "heap/lists.h"
#include "heap/waste.h"
#include "heap/slab.h"
#include "heap/slab_state.h"
#include "os/os.h"
#include "rt/heuristics.h"

#define PART 8u                    // of the bytes in slabs so much has been made since the last time, ...
#define LEAST ((size_t)128 << 10)  // ... and as much as this

// About what it costs, with what comes after: blocks are linked anew, slabs made. Of the time that passes, one part in
// so many.
#define NS_BEGIN 500u
#define NS_LIST 500u
#define NS_BLOCK 20u
#define NS_SLAB 1000u
#define SHARE 32u

// Nanoseconds. The lists of class c stay: the calling thread is about to fill one.
static uint64_t lists_home(qy_heap_t *h, unsigned c) {
    uint64_t cost = 0;
    qy_thread_t *t = QY_CACHE->thread;
    if (!t || t->heap != h) return 0;
    for (unsigned d = 1; d < QY_CLASS_COUNT; d++) {
        if (d == c || qy_lists_are_empty(t, d)) continue;
        qy_block_t *prev, *head = qy_lists_empty(t, d, &prev);
        size_t bytes = 0;
        if (head) bytes += qy_slab_put_list(h, head);
        if (prev) bytes += qy_slab_put_list(h, prev);
        t->moved += bytes;
        cost += NS_LIST + bytes / qy_class_size[d] * NS_BLOCK;
    }
    return cost;
}

void qy_reclaim_before_slab(qy_heap_t *h, unsigned c) {
    QY_NEEDS(&h->lock);
    if (!QY_WITH(reclaim) || h->made_bytes < qy_max(h->slab_bytes / PART, LEAST)) return;
    uint64_t now = qy_os_now_ns();
    if (now < h->reclaim_at) {
        h->made_bytes /= 2;  // not the clock before each slab
        return;
    }
    h->made_bytes = 0;
    uint64_t cost = NS_BEGIN + lists_home(h, c);
    // after the lists, which empty some; class c has none, or it would make no slab
    cost += qy_slab_release_empty(h) * NS_SLAB;
    h->reclaim_at = now + cost * SHARE;
    qy_waste_in_slabs(h);
}
