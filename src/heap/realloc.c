// SPDX-License-Identifier: MIT
// realloc.c: stay in place where the block's room fits the new size well; grow runs into free
// neighbours and huge objects by moving page tables; copy only as the last resort.
#include <errno.h>
#include <string.h>

#include "heap/alloc.h"
#include "heap/alloc_fast.h"
#include "heap/first_class.h"
#include "heap/free_fast.h"
#include "heap/guards.h"
#include "heap/huge.h"
#include "heap/run.h"
#include "heap/lookup.h"
#include "heap/samples.h"
#include "heap/slab.h"
#include "heap/moved.h"
#include "pages/chunk.h"

// A block is kept if the new size uses at least half of it; tiny ones always (moving costs more than
// it saves). 0 bytes fit nowhere: they are a free.
static bool fits_well(size_t usable, size_t n) { return n - 1 < usable && (n >= usable / 2 || usable <= 128); }

static bool is_zero(const char *from, size_t n) {
    uint64_t some = 0, word;
    for (; n >= sizeof word && !some; n -= sizeof word, from += sizeof word) {
        memcpy(&word, from, sizeof word);
        some = word;
    }
    for (; n && !some; n--) some = (unsigned char)*from++;
    return !some;
}

// A place that is zero keeps its zero pages without memory.
QY_COLD void qy_copy_sparse(char *to, const char *from, size_t n) {
    for (size_t part; n; n -= part, to += part, from += part) {
        part = qy_min(n, 4096);
        if (!is_zero(from, part)) memcpy(to, from, part);
    }
}

// Copied this once, and a mapping of its own then.
static void *copy_to_huge(void *p, qy_object_t o, size_t n) {
    void *q = qy_huge_alloc(NULL, QY_ALIGN_MIN, n, false);
    if (!q) return NULL;
    qy_copy_sparse(q, p, o.usable);
    qy_run_free(o.chunk, o.slab);
    return q;
}

// An object that grows becomes a mapping of its own, which moves pages instead of bytes. NULL: it must be copied.
static void *run_to_huge(void *p, qy_object_t o, size_t n) {
    if (atomic_load_explicit(&o.slab->heap, memory_order_relaxed)) return NULL;
    char *base = p;
    unsigned first = (unsigned)((size_t)(base - o.chunk->record.base) >> QY_UNIT_SHIFT);
    qy_assert(base == o.slab->base);
    qy_units_grow();
    if (qy_units_are_separate(o.chunk, first, o.slab->units)) return copy_to_huge(p, o, n);
    // All its units, which are zero afterwards: behind its end an earlier, larger size or owner may have left
    // something.
    char *q = qy_huge_from(base, (size_t)o.slab->units << QY_UNIT_SHIFT, n);
    if (!q) return NULL;
    qy_run_leave(o.chunk, o.slab);
    return q;
}

void *qy_resize(void *p, qy_object_t o, size_t n) {
    if (o.kind == QY_OBJECT_BLOCK && fits_well(o.usable, n)) return p;
    void *q = o.kind == QY_OBJECT_RUN ? qy_run_resize(o.chunk, o.slab, n) : NULL;
    if (q) return q;
    if (o.kind == QY_OBJECT_RUN && o.usable > QY_RUN_MAX && n > o.usable) return run_to_huge(p, o, n);
    if (o.kind == QY_OBJECT_HUGE && n > QY_RUN_MAX / 2) return qy_huge_resize(o.huge, n);
    return NULL;
}

QY_INLINE void *alloc(size_t n) {
    if (n <= QY_SMALL_MAX) return qy_alloc_small(n);
    return n <= QY_MEDIUM_MAX ? qy_alloc_medium(n) : qy_alloc_slow(n);
}

QY_NOINLINE static void *copy(void *p, size_t usable, size_t n) {
    int saved = n <= usable ? errno : 0;  // asked for only where it may be needed
    void *q = alloc(n);
    if (!q) {
        if (n > usable) return NULL;
        errno = saved;  // it fits where it is: a shrink never fails
        return p;
    }
    memmove(q, p, qy_min(usable, n));  // by this name, which the loader looks for anyway
    qy_free_fast(p);
    return q;
}

// What grows; what shrinks stays where it is.
QY_COLD static void *copy_sparse(void *p, size_t usable, size_t n) {
    void *q = qy_calloc_slow(n);
    if (!q) return NULL;
    qy_copy_sparse(q, p, usable);
    qy_free_slow(p);
    return q;
}

static void *realloc_release(void *p) {
    qy_free_fast(p);
    return NULL;
}

// A guarded block moves in any case: its end stays where the guard is, and pointers to where it was are found. If p is
// no block, and the program is to go on: another block, of which nothing is known.
QY_COLD static void *realloc_of_guarded(void *p, size_t n) {
    qy_object_t o = qy_lookup(p);
    if (o.kind == QY_OBJECT_GUARDED) return copy(p, o.usable, n);
    qy_guards_misused(p);
    return alloc(n);
}

QY_NOINLINE static void *realloc_slow(void *p, size_t n) {
    if (n > PTRDIFF_MAX) return qy_out_of_memory();
    if (n == 0) return realloc_release(p);
    if (qy_lookup_is_guarded(p)) return realloc_of_guarded(p, n);
    qy_object_t o = qy_lookup_must(p);
    qy_heap_t *owner = qy_owner(o);
    void *q = qy_resize(p, o, n);
    if (q) {
        if (!owner) qy_samples_resized(p, q, n);
        qy_moved_here(n > o.usable ? n - o.usable : o.usable - n);
        return q;
    }
    // A block stays in the heap it was allocated from, also when it moves.
    if (owner && owner->kind == QY_HEAP_FIRST_CLASS && !qy_samples_are_in(owner))
        return qy_first_class_realloc(owner, p, n);
    return qy_copy_is_sparse(o.usable, n) ? copy_sparse(p, o.usable, n) : copy(p, o.usable, n);
}

void *qy_realloc(void *p, size_t n) {
    if (!p) return alloc(n);
    size_t c;
    if (QY_LIKELY(qy_is_mine(QY_CACHE, p, &c))) {
        size_t usable = qy_class_size[c];
        if (QY_LIKELY(fits_well(usable, n))) return p;
        return n ? copy(p, usable, n) : realloc_release(p);
    }
    return realloc_slow(p, n);
}

size_t qy_usable_size(const void *p) {
    size_t c;
    if (QY_LIKELY(qy_is_mine(QY_CACHE, p, &c))) return qy_class_size[c];
    if ((c = qy_block_class(p, qy_map_tag(p)))) return qy_class_size[c];
    return p ? qy_lookup_must(p).usable : 0;
}
