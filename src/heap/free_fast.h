// SPDX-License-Identifier: MIT
// free_fast.h: free of a block of up to 8 KiB of the thread's own heap, and nothing else.
//
//   tag of the address ^ own key -> a class of mine? -> a block start? -> not free already? ->
//   room in this generation? -> push
//
// One compare sorts out everything that is not "mine and in a frame of 64 KiB": another owner's tag, an address that
// shares the tag's entry and memory that is not a slab (NULL too) leave more than 255 after the xor, and class 0 fails
// the block-start test because its magic is 0. Budget: bench/fastpath/expected.json.
#ifndef QY_HEAP_FREE_FAST_H
#define QY_HEAP_FREE_FAST_H

#include "heap/alloc.h"
#include "heap/cache.h"
#include "pages/map.h"

// Put a verified block on its list.
QY_INLINE void qy_free_push(qy_cache_t *t, size_t c, qy_block_t *b) {
    if (QY_UNLIKELY(--t->room[c] < 0)) {
        qy_free_full(b, c);
        return;
    }
    qy_link_put(b, t->head[c]);
    atomic_signal_fence(memory_order_release);  // a handler that ends the process looks through the lists (purge.c)
    t->head[c] = b;
}

// Is p the start of a block of class c, if it is one of those of up to 8 KiB?
QY_INLINE bool qy_is_start(qy_cache_t **t, const void *p, size_t c) {
    uint32_t product = (uint32_t)(uint16_t)(uintptr_t)p * (*t)->magic[c];
    QY_FORGET(*t);
    return product < (*t)->magic[c];
}

// By the same tests: is p a block in use of up to 8 KiB of the thread's own heap, and of which class? False: it is
// something else, or must be looked up.
QY_INLINE bool qy_is_mine(qy_cache_t *t, const void *p, size_t *ret_c) {
    size_t c = *ret_c = qy_map_look(p) ^ t->key;
    return QY_LIKELY(c <= QY_CLASS_SLAB_64K) && qy_is_start(&t, p, c) && !qy_link_may_be(p);
}

QY_INLINE void qy_free_fast(void *p) {
    qy_cache_t *t = QY_CACHE;
    size_t c = qy_map_look(p) ^ t->key;
    if (QY_UNLIKELY(c >= QY_CLASS_TINY)) {
        qy_free_other(p, c, t);
        return;
    }
    if (QY_UNLIKELY(!qy_is_start(&t, p, c))) {
        qy_free_slow(p);
        return;
    }
    if (QY_UNLIKELY(qy_link_may_be(p))) {
        qy_free_slow(p);
        return;
    }
    qy_free_push(t, c, p);
}

#endif
