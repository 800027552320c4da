// SPDX-License-Identifier: MIT
// reclaim.c: see reclaim.h.
#include "heap/reclaim.h"

#include "heap/cache.h"
#include "heap/lists.h"
#include "heap/slab_state.h"

#define PART 8u                    // of the bytes in slabs so much has been made since the last time, ...
#define LEAST ((size_t)128 << 10)  // ... and as much as this

// The lists of class c stay: the calling thread is about to fill one.
static void lists_home(qy_heap_t *h, unsigned c) {
    qy_thread_t *t = QY_CACHE->thread;
    if (!t || t->heap != h) return;
    for (unsigned d = 1; d < QY_CLASS_COUNT; d++) {
        qy_block_t *head = qy_cache_list(t->cache, d), *prev = t->prev[d];
        if (d == c || (!head && !prev)) continue;
        qy_cache_set_list(t->cache, d, t->prev[d] = NULL);
        t->cache->room[d] = 0;
        if (head) t->moved += qy_lists_home(h, head);
        if (prev) t->moved += qy_lists_home(h, prev);
    }
}

// A class with free blocks makes no slab, so those of c, if there are any, are not empty.
static void release_empty(qy_heap_t *h) {
    for (unsigned d = 1; d < QY_CLASS_COUNT; d++) {
        qy_bin_t *bin = &h->bins[d];
        for (unsigned l = 0; l < QY_LISTS && bin->nempty; l++) {
            for (qy_slab_t *s = bin->list[l], *next; s; s = next) {
                next = s->next;
                if (!qy_slab_is_empty(s)) continue;
                bin->nempty--;
                qy_slab_release(h, s);
            }
        }
    }
}

void qy_reclaim_before_slab(qy_heap_t *h, unsigned c, size_t bytes) {
    h->made_bytes += bytes;
    if (h->made_bytes < qy_max(h->slab_bytes / PART, LEAST)) return;
    h->made_bytes = 0;
    lists_home(h, c);
    release_empty(h);
}
