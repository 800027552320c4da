// SPDX-License-Identifier: MIT
// slab_home.c: free blocks go home to their slabs: one, a list of any slabs of the heap, or a chain of one slab from
// another thread.
#include "heap/link.h"
#include "heap/slab.h"
#include "pages/chunk.h"
#include "pages/map.h"
#include "pages/purging.h"

bool qy_slab_index(const qy_slab_t *s, const void *p, uint32_t *ret_index) {
    size_t offset = (size_t)((const char *)p - s->origin), size = qy_class_size[s->cls];
    if ((const char *)p < s->origin) return false;
    *ret_index = (uint32_t)(offset / size);
    return offset == *ret_index * size && *ret_index < s->ncarved;
}

// Block i is at home from now on: the word of bits it belongs to. One that is at home already was freed twice: its mark
// must have been written to between.
QY_INLINE uint64_t with_home(const qy_slab_t *s, uint64_t word, qy_block_t *b, uint32_t i) {
    uint64_t mine = UINT64_C(1) << (i % 64);
    if (QY_UNLIKELY(word & mine))
        qy_fatal(QY_FAULT_DOUBLE_FREE, b, "block of %z byte%S", (size_t)qy_class_size[s->cls]);
    return word | mine;
}

void qy_slab_put(qy_heap_t *h, qy_slab_t *s, qy_block_t *b) {
    QY_NEEDS(&h->lock);
    size_t size = qy_class_size[s->cls], offset = (size_t)((char *)b - s->origin);  // huge if b lies before
    if (QY_UNLIKELY(offset >= s->ncarved * size || !qy_class_is_start(s->cls, qy_class_offset(s->cls, b))))
        qy_fatal(QY_FAULT_INVALID_FREE, b, "never allocated");
    uint32_t i = qy_class_index(qy_class_reciprocal(s->cls), offset);
    if (QY_UNLIKELY(s->npurged) && qy_slab_is_purged(s, i))
        qy_fatal(QY_FAULT_DOUBLE_FREE, b, "block of %z byte%S", size);
    qy_link_set(b, NULL);
    s->home[i / 64] = with_home(s, s->home[i / 64], b, i);
    s->nhome++;
    s->low = (uint8_t)qy_min(s->low, i / 64);
    s->epoch = qy_purging_epoch();
    h->free_bytes += size;
}

static qy_slab_t *slab_of(const qy_heap_t *h, const qy_block_t *b) {
    const qy_chunk_t *chunk = qy_map_chunk(b);
    qy_slab_t *s = chunk ? qy_chunk_span(chunk, b) : NULL;
    if (QY_UNLIKELY(!s || s->kind != QY_SPAN_SLAB || atomic_load_explicit(&s->heap, memory_order_relaxed) != h))
        qy_fatal(QY_FAULT_CORRUPT_LINK, b, "not a block of the heap it was freed to");
    return s;
}

// At most so many blocks of the list; *ret_rest is what stays of it.
QY_INLINE size_t put_list(qy_heap_t *h, qy_block_t *list, uint32_t most, qy_block_t **ret_rest) {
    QY_NEEDS(&h->lock);
    uint32_t epoch = qy_purging_epoch();
    size_t bytes = 0;
    ptrdiff_t step = 0;
    qy_block_t *b = list;
    while (b && most) {
        qy_slab_t *s = slab_of(h, b);
        char *origin = s->origin;
        uint64_t *bits = s->home;
        unsigned c = s->cls;
        size_t size = qy_class_size[c], offset = (size_t)((char *)b - origin), end = s->ncarved * size;
        if (QY_UNLIKELY(offset >= end)) qy_fatal(QY_FAULT_INVALID_FREE, b, "never allocated");
        // Often some that follow each other are of one slab.
        uint32_t n = 0, npurged = s->npurged, reciprocal = qy_class_reciprocal(c);
        // The word of bits that the last block was of is kept here: the next one's is mostly the same, and would wait
        // for the store.
        uint32_t w = qy_class_index(reciprocal, offset) / 64;
        uint64_t word = bits[w];
        do {
            uint32_t i = qy_class_index(reciprocal, offset);
            if (i / 64 != w) {
                bits[w] = word;
                word = bits[w = i / 64];
            }
            qy_assert(qy_class_is_start(c, qy_class_offset(c, b)));
            if (QY_UNLIKELY(npurged) && qy_slab_is_purged(s, i))
                qy_fatal(QY_FAULT_DOUBLE_FREE, b, "block of %z byte%S", size);
            if (QY_UNLIKELY(!qy_link_valid(b))) qy_fatal(QY_FAULT_CORRUPT_LINK, b, QY_LINK_WRITTEN);
            word = with_home(s, word, b, i);
            n++;
            b = qy_link_step(b, &step);
            offset = (size_t)((char *)b - origin);
        } while (offset < end && (most == UINT32_MAX || n < most));
        bits[w] = word;
        if (most != UINT32_MAX) most -= n;
        s->nhome += n;
        s->low = 0;
        s->epoch = epoch;
        h->free_bytes += n * size;
        bytes += n * size;
        if (s->nhome >= s->settle_at) qy_slab_settle(h, s);
        if (b == &qy_link_end) b = NULL;
    }
    h->flushes++;
    *ret_rest = b;
    return bytes;
}

size_t qy_slab_put_list(qy_heap_t *h, qy_block_t *list) {
    qy_block_t *none;
    return put_list(h, list, UINT32_MAX, &none);
}

unsigned qy_slab_put_some(qy_heap_t *h, unsigned c, qy_block_t **list, unsigned most) {
    return (unsigned)(put_list(h, *list, (uint32_t)most, list) / qy_class_size[c]);
}

void qy_slab_put_chain(qy_heap_t *h, qy_slab_t *s, qy_block_t *first, qy_block_t *last, uint32_t count) {
    QY_NEEDS(&h->lock);
    // The chain is not walked: its blocks are in the cache of who freed them. Only if both places are taken the last
    // one is touched.
    if (!s->chain) {
        s->chain = first;
    } else if (!s->chain2) {
        s->chain2 = first;
        s->nchain2 = count;
    } else {
        if (QY_UNLIKELY(qy_link_next(last)))
            qy_fatal(QY_FAULT_CORRUPT_META, last, "remote chain is longer than its count");
        qy_link_set(last, s->chain2);
        s->chain2 = first;
        s->nchain2 += count;
    }
    s->nchain += count;
    if (QY_UNLIKELY(qy_slab_home(s) > s->ncarved))
        qy_fatal(QY_FAULT_CORRUPT_META, s->base, "more free blocks than were given out");
    s->epoch = qy_purging_epoch();
    h->free_bytes += (size_t)count * qy_class_size[s->cls];
}
