// SPDX-License-Identifier: MIT
// alloc_fast.h: malloc when the thread's cache has a block, and nothing else.
//
//   the size, to 1 KiB -> class of this heap -> head of its list -> is the block's mark right? -> pop
//
// Budget (gcc 12 -O2, x86-64, drop-in): see bench/fastpath/expected.json. No lock, no atomic, no call. Size 0, and all
// sizes in a thread that has no heap yet land in class 0, whose list is always empty. The end of a list is a block
// whose mark is never right (link.h), so that one compare finds the empty and the damaged list.
#ifndef QY_HEAP_ALLOC_FAST_H
#define QY_HEAP_ALLOC_FAST_H

#include "heap/alloc.h"
#include "heap/cache.h"
#include "heap/sizeclass.h"

// NULL: nothing there, or the slow path has to say that it was written to.
QY_INLINE void *qy_alloc_pop(qy_cache_t *t, size_t c) {
    qy_block_t *b = t->head[c];
    uint64_t link = b->link;
    if (QY_UNLIKELY(!qy_link_is_marked(b, link, b->mark))) return NULL;
    qy_block_t *next = qy_link_shown(link);
    t->head[c] = next;
    __builtin_prefetch(next, 1);  // it may be in the cache of who freed it, and the next call reads it
    b->link = 0;                  // no longer free: a block handed out never carries a valid mark
    return b;
}

QY_INLINE void *qy_alloc_small(size_t n) {
    qy_cache_t *t = QY_CACHE;
    void *p = qy_alloc_pop(t, t->small[n]);
    return QY_LIKELY(p != NULL) ? p : qy_alloc_slow(n);
}

QY_INLINE void *qy_alloc_medium(size_t n) {
    qy_cache_t *t = QY_CACHE;
    void *p = qy_alloc_pop(t, t->cls[qy_step_medium(n)]);
    return QY_LIKELY(p != NULL) ? p : qy_alloc_slow(n);
}

#endif
