// SPDX-License-Identifier: MIT
// alloc_slow.c: malloc when the thread's cache is empty: the previous generation, then the heap's
// slabs under its lock, then, when the kernel has nothing more, whatever can be given back first.
#include <errno.h>
#include <string.h>

#include "heap/alloc.h"
#include "heap/cache.h"
#include "heap/clear.h"
#include "heap/depot.h"
#include "heap/draw.h"
#include "heap/heaps.h"
#include "heap/large.h"
#include "heap/sizeclass.h"
#include "heap/link.h"
#include "heap/purge.h"
#include "heap/samples.h"
#include "heap/slab.h"
#include "heap/moved.h"
#include "heap/tiny.h"
#include "heap/zero.h"

void *qy_out_of_memory(void) {
    errno = ENOMEM;
    return NULL;
}

static qy_block_t *give_out(qy_block_t *b) {
    b->link = b->mark = 0;
    return b;
}

// About what a list from the slabs holds, for the statistics page.
#define REFILL_BYTES ((size_t)4096)

// Before the slabs fill a list, the first blocks of the list that they filled last are looked at: they are the ones
// next to what the thread has just freed or had. A write into these is told now, and not when one is handed out, which
// may never be.
#define LOOK_AT 3u
static void look_at_last(qy_thread_t *t, unsigned c) {
    const qy_block_t *b = qy_cache_list(&t->cache, t->filled);
    for (unsigned i = 0; b && i < LOOK_AT; i++) b = qy_link_next(b);
    t->filled = (uint8_t)c;
}

// The blocks that a list of class c is filled with, of which one is for n bytes: the previous generation, one in the
// depot, or what the slabs have, which may be one block of a larger class, if `larger`. *ret_count: how many are from
// the slabs. *ret_fresh: it is one that is no list (qy_slab_take).
QY_INLINE qy_block_t *find_blocks(
    qy_thread_t *t, unsigned c, size_t n, bool larger, uint32_t *ret_count, bool *ret_fresh) {
    qy_block_t *list = t->prev[c];
    *ret_fresh = false;
    *ret_count = 0;
    if (!list) {
        look_at_last(t, c);
        qy_heap_lock(t->heap);
        uint32_t count = 0;
        qy_learn_request(t->heap, c, n);
        list = qy_depot_take(t->heap, c);
        unsigned merged = 1;
        if (!list) {
            unsigned limit = qy_budget_limit(c);
            unsigned want = qy_budget_is_short() ? (unsigned)qy_max(limit, 1) : UINT32_MAX;
            list = qy_slab_take_some(t->heap, c, want, larger ? n : 0, &count, ret_fresh);
            *ret_count = list ? count : 0;
            merged = list && c <= QY_CLASS_SMALL && count > limit ? QY_BEGAN_LONG : 0;  // it may be many generations
        }
        qy_heap_unlock(t->heap);
        if (!list) return NULL;
        t->merged[c] = (uint8_t)merged;
    } else {
        t->prev[c] = NULL;
        t->merged[c] = 1;
    }
    t->busy[c] = true;
    return list;
}

// The thread's list had to be filled.
QY_INLINE void refilled(qy_thread_t *t, unsigned c, bool had_prev) {
    if (!had_prev) qy_moved(t, qy_max(qy_class_size[c], REFILL_BYTES));
}

// One block of class c for n bytes, for a thread with a cache whose list is empty.
static qy_block_t *refill(qy_thread_t *t, unsigned c, size_t align, size_t n, bool *ret_fresh) {
    bool had_prev = t->prev[c];
    uint32_t count;
    // A block of a larger class is not aligned as one of this class may have to be.
    qy_block_t *list = find_blocks(t, c, n, align <= QY_ALIGN_MIN, &count, ret_fresh);
    if (!list) return NULL;
    qy_cache_set_list(&t->cache, c, *ret_fresh ? NULL : qy_link_next(list));
    if (!*ret_fresh) give_out(list);
    refilled(t, c, had_prev);
    return list;
}

// The same, and of a list that is not empty, too, while the sampler is on, or it was just switched.
QY_COLD static void *alloc_drawn(qy_thread_t *t, unsigned c, size_t align, size_t n, bool *ret_fresh) {
    bool zeros = *ret_fresh, filled = false, had_prev = t->prev[c];
    unsigned rate;
    void *p = NULL;
    qy_draw_look(t);
    bool on = qy_draw_is_on(t);
    qy_block_t *b = qy_cache_list(&t->cache, c);
    *ret_fresh = false;
    if (!b) {
        uint32_t count;
        bool fresh;
        b = find_blocks(t, c, n, false, &count, &fresh);
        if (!b) return NULL;
        filled = true;
        if (fresh) {
            *ret_fresh = zeros;
            if (on) p = qy_samples_take_at_once(align, n, ret_fresh);
            if (!p) {
                *ret_fresh = true;
                refilled(t, c, had_prev);
                return b;
            }
            qy_link_set(b, NULL);
        }
        qy_cache_set_list(&t->cache, c, b);
        if (on && count) qy_draw_list(t, c, b, count);
    }
    if (!p && on && qy_link_is_chosen(b, &rate) && qy_draw_accepts(t, c, rate, n)) {
        *ret_fresh = zeros;
        p = qy_samples_take(align, n, rate, ret_fresh);
        if (p) qy_draw_again(t, c, b);
        else *ret_fresh = false;
    }
    if (!p) {
        qy_cache_set_list(&t->cache, c, qy_link_next(b));
        p = give_out(b);
    }
    if (filled) refilled(t, c, had_prev);
    return p;
}

void *qy_alloc_locked(qy_heap_t *h, size_t align, size_t n, bool *ret_fresh) {
    if (n > PTRDIFF_MAX) return NULL;
    if (n == 0) n = 1;
    unsigned c = qy_class_aligned(h->cls, align, n);
    if (!c) return qy_large_alloc(h, align, n, ret_fresh);
    qy_block_t *b = qy_slab_take_one(h, c, ret_fresh);
    // The heap may have blocks of the coarser classes it used before it refined them.
    for (unsigned d = c, more = 7; !b && more && align <= QY_ALIGN_MIN && qy_class_size[d] < QY_MEDIUM_MAX; more--)
        b = qy_slab_take_one(h, d = qy_class_fine(qy_class_size[d] + 1u), ret_fresh);
    // With its colour a large block needs a unit more than it fills: where a limit has no room for that, a run of its
    // own may fit.
    if (!b && h->limit && c > QY_CLASS_SLAB_64K) return qy_large_alloc(h, align, n, ret_fresh);
    return b && !*ret_fresh ? give_out(b) : b;
}

static void *alloc_without_cache(qy_heap_t *h, size_t align, size_t n, bool *ret_fresh) {
    if (!h) return NULL;
    bool zeros = *ret_fresh;
    void *p = qy_draw_is_wanted() ? qy_samples_take_at_once(align, n, ret_fresh) : NULL;
    if (p) return p;
    *ret_fresh = zeros;
    qy_heap_lock(h);
    p = qy_alloc_locked(h, align, n, ret_fresh);
    qy_heap_unlock(h);
    qy_moved_here(n);
    return p;
}

static void *large(size_t align, size_t n, bool *ret_fresh) {
    void *p = qy_large_alloc(NULL, align, n, ret_fresh);
    if (p && qy_draw_is_wanted()) qy_samples_large(p, n);
    qy_moved_here(n);
    return p;
}

// Any size, any alignment, from the calling thread's heap. One try. *ret_fresh: in, whether zeroed memory
// is wanted; out, whether it is (see qy_large_alloc and qy_slab_take).
static void *try_alloc(size_t align, size_t n, bool *ret_fresh) {
    if (!qy_heap_init()) return NULL;
    if (n > QY_MEDIUM_MAX || align > QY_MEDIUM_MAX) return large(align, n, ret_fresh);
    qy_thread_t *t = qy_thread_get();
    if (QY_UNLIKELY(!t)) return alloc_without_cache(qy_heap_shared(), align, n, ret_fresh);
    if (QY_UNLIKELY(!qy_cache_is_on(&t->cache))) return alloc_without_cache(t->heap, align, n, ret_fresh);
    qy_cache_refresh_classes(t);
    unsigned c = align <= QY_ALIGN_MIN ? t->cache.cls[qy_step(n)] : qy_class_aligned(t->cache.cls, align, n);
    if (!c) return large(align, n, ret_fresh);
    if (qy_draw_has_say(t)) return alloc_drawn(t, c, align, n, ret_fresh);
    qy_block_t *b = qy_cache_list(&t->cache, c);
    if (!b) return refill(t, c, align, n, ret_fresh);
    qy_cache_set_list(&t->cache, c, qy_link_next(b));
    *ret_fresh = false;
    return give_out(b);
}

static void *alloc_any(size_t align, size_t n, bool *ret_fresh) {
    bool zeros = *ret_fresh;
    if (QY_UNLIKELY(qy_size_is_hopeless(align, n))) return qy_out_of_memory();
    void *p = n ? NULL : qy_zero_alloc(align);
    if (p) return p;
    if (n == 0) n = 1;
    p = try_alloc(align, n, ret_fresh);
    if (QY_LIKELY(p != NULL)) return p;
    qy_purge_everything();
    *ret_fresh = zeros;
    p = try_alloc(align, n, ret_fresh);
    return p ? p : qy_out_of_memory();
}

// Has the thread's heap blocks of 8 bytes, and does one do for n?
QY_INLINE bool takes_tiny(size_t n) {
    const qy_thread_t *t = QY_CACHE->thread;
    return n - 1 < QY_TINY && t && t->tiny_on;
}

void *qy_alloc_slow(size_t n) {
    if (n - 1 < QY_TINY) {
        void *p;
        if (QY_LIKELY(qy_tiny_pop_unseen(QY_CACHE, &p))) return p;
        if (takes_tiny(n)) return qy_tiny_malloc(n);
    }
    bool fresh = false;
    return alloc_any(QY_ALIGN_MIN, n, &fresh);
}

void *qy_aligned_alloc(size_t align, size_t n) {
    bool fresh = false;
    return alloc_any(align, n, &fresh);
}

void *qy_calloc_slow(size_t n) { return takes_tiny(n) ? qy_tiny_calloc(n) : qy_aligned_calloc(QY_ALIGN_MIN, n); }

void *qy_aligned_calloc(size_t align, size_t n) {
    bool fresh = true;
    void *p = alloc_any(align, n, &fresh);
    if (p && !fresh) qy_clear(p, n);
    return p;
}
