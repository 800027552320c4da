// SPDX-License-Identifier: MIT
// sums.h: what the heaps and the page layer have, summed in one place.
// It is for the statistics (stats.h) and for the page of them (stats_page.h).
#ifndef QY_HEAP_SUMS_H
#define QY_HEAP_SUMS_H

#include <quarry/stats_page.h>

#include "heap/sizeclass.h"
#include "heap/slab.h"
#include "heap/tiny.h"
#include "heap/types.h"

typedef quarry_stats_page_sums_t qy_sums_t;

// What a slab has. Needs the heap's lock.
typedef struct qy_slab_sums {
    size_t block_bytes, bytes, fresh;  // of a block; of all of it; of that never given out
    size_t out, home, purged;          // blocks: given out; at home or on the way; of which on pages that went back
    size_t loose;                      // those of home that only the heap's thread may take (tiny.h)
} qy_slab_sums_t;
QY_INLINE qy_slab_sums_t qy_slab_sums(const qy_slab_t *s) {
    size_t size = qy_class_size[s->cls], bytes = (size_t)s->units << QY_UNIT_SHIFT;
    bool tiny = s->cls == QY_CLASS_TINY;
    uint64_t word = atomic_load_explicit(&s->remote, memory_order_relaxed);
    size_t remote = (size_t)(word >> QY_REMOTE_COUNT_SHIFT & QY_REMOTE_MASK);
    size_t home = tiny ? qy_tiny_free_blocks(s) : qy_slab_home(s) + remote;
    return (qy_slab_sums_t){
        .block_bytes = size,
        .bytes = bytes,
        .fresh = bytes - s->ncarved * size,
        .out = s->ncarved - home,
        .home = home,
        .purged = s->npurged,
        .loose = tiny ? home - qy_slab_home(s) : 0,
    };
}

// What a heap counts by itself is added: slabs, free blocks, events. Needs the heap's lock.
void qy_sums_add_heap(qy_sums_t *sums, const qy_heap_t *h);

// What there is once: large objects, pages, records, numbers of heaps, what went back.
void qy_sums_set_rest(qy_sums_t *sums);

#endif
