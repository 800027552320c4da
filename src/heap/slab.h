// SPDX-License-Identifier: MIT
// slab.h: slabs and the bins of a heap. Everything here needs the heap's lock.
#ifndef QY_HEAP_SLAB_H
#define QY_HEAP_SLAB_H

#include "heap/types.h"
#include "heap/sizeclass.h"

// Descriptors of spans, with all fields zero; NULL if there is no memory. Any thread, any locks but that of metadata.
qy_slab_t *qy_span_new(void);
void qy_span_delete(qy_slab_t *span);
extern qy_slab_t qy_span_freed;  // stands in span[] where a run was freed, so that a second free is named

// Index of the block at p, which lies in the slab's span. False if p is not the start of one.
bool qy_slab_index(const qy_slab_t *s, const void *p, uint32_t *ret_index);

// Take free blocks of class c from the heap's slabs: a chain of *ret_count, at least one, best source first;
// a new slab if need be. NULL: no memory (or the heap's limit). *ret_fresh: it is a single block that was
// never touched: all zero, and without a link.
qy_block_t *qy_slab_take(qy_heap_t *h, unsigned c, uint32_t *ret_count, bool *ret_fresh);

// The same, of about `want` blocks at most; what was handed over as a chain is not cut, unless one is wanted. `larger`:
// if not 0, it may be one block of a larger class for so many bytes, rather than memory that was never touched.
qy_block_t *qy_slab_take_some(
    qy_heap_t *h, unsigned c, unsigned want, size_t larger, uint32_t *ret_count, bool *ret_fresh);

// Take exactly one block.
qy_block_t *qy_slab_take_one(qy_heap_t *h, unsigned c, bool *ret_fresh);

// Bring one block home. `p` is a block start of s (qy_slab_index was asked) and free by its mark.
void qy_slab_put(qy_heap_t *h, qy_slab_t *s, qy_block_t *b);

// Bring home a list of blocks, which were put on it as free blocks of this heap, and settle their slabs. Bytes.
size_t qy_slab_put_list(qy_heap_t *h, qy_block_t *list);

// The same for the first `most` of a list of class c at most; *list is what stays of it. How many.
unsigned qy_slab_put_some(qy_heap_t *h, unsigned c, qy_block_t **list, unsigned most);

// Bring a chain of `count` blocks, from first to last, home in one go (adopted from remote).
void qy_slab_put_chain(qy_heap_t *h, qy_slab_t *s, qy_block_t *first, qy_block_t *last, uint32_t count);

// File the slab by what it has to give; give it back if it is empty and not one of those that stay.
void qy_slab_settle(qy_heap_t *h, qy_slab_t *s);

// Give back the OS pages of the slab that only free blocks lie on. Returns bytes.
size_t qy_slab_purge(qy_heap_t *h, qy_slab_t *s);

// Return the slab's units. No block of it may be in use, unless the heap is being destroyed.
void qy_slab_release(qy_heap_t *h, qy_slab_t *s);

// Release the slabs of h, which is locked, that are kept though they are empty. How many.
size_t qy_slab_release_empty(qy_heap_t *h);

// Move a slab with free or uncarved blocks of class c from an idle heap (locked by the caller) to h.
bool qy_slab_steal(qy_heap_t *h, qy_heap_t *idle, unsigned c);

// Spans of a heap: enter and leave its list.
void qy_span_enter(qy_heap_t *h, qy_slab_t *s);
void qy_span_leave(qy_heap_t *h, qy_slab_t *s);

// Verify the slab's invariants; NULL or what is wrong.
const char *qy_slab_check(const qy_heap_t *h, const qy_slab_t *s);

// Blocks at home, and purged ones.
QY_INLINE uint32_t qy_slab_home(const qy_slab_t *s) { return s->nhome + s->nchain + s->npurged; }
QY_INLINE bool qy_slab_is_purged(const qy_slab_t *s, uint32_t i) {
    return s->purged && (s->purged[i / 64] >> (i % 64) & 1);
}

// ---- what the files of the slabs share -------------------------------------------------------------------

// A new slab of class c, of which nothing is carved. NULL: no memory, or the heap's limit.
qy_slab_t *qy_slab_new(qy_heap_t *h, unsigned c);

// What is at home has changed: put the slab on the list of its bin that it belongs on.
void qy_slab_relist(qy_heap_t *h, qy_slab_t *s);

// qy_slab_check, but for what the program may have done: blocks that it wrote to.
const char *qy_slab_sound(const qy_heap_t *h, const qy_slab_t *s);

// The tags of its pages say its heap, its class, and whether any block is purged: of those on which carved blocks
// begin, but for those that had them when `since` blocks were carved.
void qy_slab_set_tags(const qy_heap_t *h, const qy_slab_t *s, uint32_t since);

// Nothing is on its way to it, nor does a thread hold on to its descriptor.
QY_INLINE bool qy_slab_is_left_alone(const qy_slab_t *s) {
    return atomic_load_explicit(&s->remote, memory_order_acquire) == 0;
}

QY_INLINE bool qy_slab_is_empty(const qy_slab_t *s) {
    return qy_slab_home(s) == s->ncarved && (s->cls == QY_CLASS_TINY || qy_slab_is_left_alone(s));
}

// Call before blocks leave a slab that may be empty.
QY_INLINE void qy_slab_leaves_empty(qy_heap_t *h, const qy_slab_t *s) {
    if (qy_slab_is_empty(s)) h->bins[s->cls].nempty--;
}

// These bytes are about to be touched page by page.
void qy_slab_populate(char *at, size_t bytes);

// h is about to make a slab for class c: perhaps bring home what the calling thread's lists hold of other classes, if
// it is its heap, and release empty slabs.
void qy_slab_reclaim(qy_heap_t *h, unsigned c);

// Let h have a slab of class c from an idle heap instead of growing. False: there was none.
bool qy_slab_steal_idle(qy_heap_t *h, unsigned c);

// So many bits its bitmaps have, at least.
QY_INLINE uint32_t qy_slab_bits(const qy_slab_t *s) {
    return (uint32_t)(((size_t)s->units << QY_UNIT_SHIFT) / qy_class_size[s->cls]);
}

QY_INLINE qy_block_t *qy_slab_block(const qy_slab_t *s, uint32_t i) {
    return (qy_block_t *)(s->origin + (size_t)i * qy_class_size[s->cls]);
}

QY_INLINE bool qy_slab_bit(const uint64_t *bits, uint32_t i) { return bits[i / 64] >> (i % 64) & 1; }

#endif
