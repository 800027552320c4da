// SPDX-License-Identifier: MIT
// realloc.c: stay in place where the block's room fits the new size well; grow runs into free
// neighbours and huge objects by moving page tables; copy only as the last resort.
#include <errno.h>
#include <string.h>

#include "heap/alloc.h"
#include "heap/alloc_fast.h"
#include "heap/chunk.h"
#include "heap/first_class.h"
#include "heap/free_fast.h"
#include "heap/large.h"
#include "heap/lookup.h"
#include "heap/slab.h"
#include "heap/stats_page.h"

// A block is kept if the new size uses at least half of it; tiny ones always (moving costs more than
// it saves).
static bool fits_well(size_t usable, size_t n) { return n <= usable && (n >= usable / 2 || usable <= 128); }

static bool resize_in_place(qy_object_t o, size_t n) {
    switch (o.kind) {
    case QY_OBJECT_BLOCK: return fits_well(o.usable, n);
    case QY_OBJECT_RUN: return qy_run_resize(o.chunk, o.slab, n);
    default: return false;
    }
}

// An object that grows becomes a mapping of its own, which moves pages instead of bytes. NULL: it must be copied.
static void *run_to_huge(void *p, qy_object_t o, size_t n) {
    if (atomic_load_explicit(&o.slab->heap, memory_order_relaxed)) return NULL;
    // All its units, which are zero afterwards: behind its end an earlier, larger size or owner may have left something.
    void *q = qy_huge_from(p, (size_t)o.slab->units << QY_UNIT_SHIFT, n);
    if (q) qy_run_leave(o.chunk, o.slab);
    return q;
}

void *qy_resize(void *p, size_t n, size_t *ret_usable) {
    qy_object_t o = qy_lookup_must(p);
    *ret_usable = o.usable;
    if (resize_in_place(o, n)) return p;
    if (o.kind == QY_OBJECT_RUN && o.usable > QY_RUN_MAX && n > o.usable) return run_to_huge(p, o, n);
    if (o.kind == QY_OBJECT_HUGE && n > QY_RUN_MAX / 2) return qy_huge_resize(o.chunk, n);
    return NULL;
}

// A block stays in the heap it was allocated from, also when it moves.
static qy_heap_t *owner_of(const void *p) {
    qy_object_t o = qy_lookup(p);
    return atomic_load_explicit(o.kind == QY_OBJECT_HUGE ? &o.chunk->heap : &o.slab->heap, memory_order_relaxed);
}

QY_NOINLINE static void *realloc_slow(void *p, size_t n) {
    size_t usable;
    if (n > PTRDIFF_MAX) return qy_out_of_memory();
    void *q = qy_resize(p, n, &usable);
    if (q) {
        qy_stats_moved_here(n > usable ? n - usable : usable - n);
        return q;
    }
    qy_heap_t *owner = owner_of(p);
    if (owner && owner->kind == QY_HEAP_FIRST_CLASS) return qy_first_class_realloc(owner, p, n);
    int saved = errno;
    q = n <= QY_SMALL_MAX ? qy_alloc_small(n) : n <= QY_MEDIUM_MAX ? qy_alloc_medium(n)
                                                                   : qy_alloc_slow(n);
    if (!q) {
        if (n > usable) return NULL;
        errno = saved;  // it fits where it is: a shrink never fails
        return p;
    }
    memcpy(q, p, qy_min(usable, n));
    qy_free_fast(p);
    return q;
}

void *qy_realloc(void *p, size_t n) {
    if (!p) return n <= QY_SMALL_MAX ? qy_alloc_small(n) : qy_alloc_slow(n);
    if (n == 0) {
        qy_free_fast(p);
        return NULL;
    }
    // In place, as the fast path of free tells "mine, and a block start".
    qy_cache_t *t = QY_CACHE;
    size_t c = qy_map_tag(p) ^ t->key;
    if (QY_LIKELY(c <= QY_CLASS_SMALL) && (uint32_t)(uint16_t)(uintptr_t)p * t->magic[c] < t->magic[c] && fits_well(c * 16, n) &&
        ((qy_block_t *)p)->mark != (uintptr_t)((qy_block_t *)p)->next + (uintptr_t)p + t->secret)
        return p;
    return realloc_slow(p, n);
}

size_t qy_usable_size(const void *p) {
    if (!p) return 0;
    return qy_lookup_must(p).usable;
}
