// SPDX-License-Identifier: MIT
// free_fast.h: free of a block of up to 8 KiB of the thread's own heap, and nothing else.
//
//   tag of the address ^ own key -> a class of mine? -> a block start, and room in this generation? ->
//   not free already? -> push
//
// One compare sorts out everything that is not "mine and in a frame of 64 KiB": another owner's tag, an address that
// shares the tag's entry and memory that is not a slab (NULL too) leave more than 255 after the xor. No tag has class
// 0. Budget: bench/fastpath/expected.json.
#ifndef QY_HEAP_FREE_FAST_H
#define QY_HEAP_FREE_FAST_H

#include "heap/alloc.h"
#include "heap/cache.h"
#include "pages/map.h"

// Put a verified block on its list, ...
QY_INLINE void qy_free_link(qy_cache_t *t, size_t c, qy_block_t *b) {
    qy_link_put(b, t->head[c]);
    atomic_signal_fence(memory_order_release);  // a handler that ends the process looks through the lists (purge.c)
    t->head[c] = b;
}
// ... if there is room.
QY_INLINE void qy_free_push(qy_cache_t *t, size_t c, qy_block_t *b) {
    if (QY_UNLIKELY(--t->room[c] == 0)) {
        qy_free_full(b, c, t);
        return;
    }
    qy_free_link(t, c, b);
}

// Is p the start of a block of class c, if it is one of those of up to 8 KiB?
QY_INLINE uint32_t qy_start_product(const qy_cache_t *t, const void *p, size_t c) {
    return (uint32_t)(uint16_t)(uintptr_t)p * t->magic[c];
}
QY_INLINE bool qy_is_start(const qy_cache_t *t, const void *p, size_t c) {
    return qy_start_product(t, p, c) <= QY_START_MOST;
}

// The same, and one is taken of the room. True: p is none, or no room is left, and qy_free_rare has to be asked. A
// subtraction by one leaves the carry of the compare as it is, so that one branch asks both: CF or ZF.
QY_INLINE bool qy_is_rare(qy_cache_t *t, const void *p, size_t c) {
    uint32_t product = qy_start_product(t, p, c);
#if defined(__x86_64__)
    bool rare;
    __asm__ volatile("cmpl %[product], %[most]\n\tdecb %[room]"
                     : "=@ccbe"(rare), [room] "+m"(t->room[c])
                     : [product] "r"(product), [most] "m"(t->start_most));
    return rare;
#else
    return (--t->room[c] == 0) | (product > t->start_most);
#endif
}

// By the same tests: is p a block in use of up to 8 KiB of the thread's own heap, and of which class? False: it is
// something else, or must be looked up.
QY_INLINE bool qy_is_mine(qy_cache_t *t, const void *p, size_t *ret_c) {
    size_t c = *ret_c = qy_map_look(p) ^ t->key;
    return QY_LIKELY(c < QY_CLASS_TINY) && qy_is_start(t, p, c) && !qy_link_may_be(p);
}

QY_INLINE void qy_free_fast(void *p) {
    qy_cache_t *t = QY_CACHE;
    size_t c = qy_map_look(p) ^ t->key;
    if (QY_UNLIKELY(c >= QY_CLASS_TINY)) {
        qy_free_other(p, c, t);
        return;
    }
    if (QY_UNLIKELY(qy_is_rare(t, p, c)) || QY_UNLIKELY(qy_link_may_be(p))) {
        qy_free_rare(p, c, t);
        return;
    }
    qy_free_link(t, c, p);
}

#endif
