// SPDX-License-Identifier: MIT
// slab_state.h: what the files of the slabs share (slab.c, slab_take.c, slab_home.c, slab_purge.c). All needs the
// heap's lock.
#ifndef QY_HEAP_SLAB_STATE_H
#define QY_HEAP_SLAB_STATE_H

#include "heap/sizeclass.h"
#include "heap/types.h"

// A new slab of class c, of which nothing is carved. NULL: no memory, or the heap's limit.
qy_slab_t *qy_slab_new(qy_heap_t *h, unsigned c);

// What is at home has changed: put the slab on the list of its bin that it belongs on.
void qy_slab_relist(qy_heap_t *h, qy_slab_t *s);

// qy_slab_check, but for what the program may have done: blocks that it wrote to.
const char *qy_slab_sound(const qy_heap_t *h, const qy_slab_t *s);

// The tags of its pages say its heap, its class, and whether any block is purged: of those on which carved blocks
// begin, but for those that had them when `since` blocks were carved.
void qy_slab_set_tags(const qy_heap_t *h, const qy_slab_t *s, uint32_t since);

QY_INLINE bool qy_slab_is_empty(const qy_slab_t *s) {
    return qy_slab_home(s) == s->ncarved && atomic_load_explicit(&s->remote, memory_order_acquire) == 0;
}

// So many bits its bitmaps have, at least.
QY_INLINE uint32_t qy_slab_bits(const qy_slab_t *s) {
    return (uint32_t)(((size_t)s->units << QY_UNIT_SHIFT) / qy_class_size[s->cls]);
}

QY_INLINE qy_block_t *qy_slab_block(const qy_slab_t *s, uint32_t i) {
    return (qy_block_t *)(s->origin + (size_t)i * qy_class_size[s->cls]);
}

QY_INLINE bool qy_slab_bit(const uint64_t *bits, uint32_t i) { return bits[i / 64] >> (i % 64) & 1; }

#endif
