// SPDX-License-Identifier: MIT
// lookup.h: what a pointer is, exactly, for slow paths; and the class of a block in use, fast.
#ifndef QY_HEAP_LOOKUP_H
#define QY_HEAP_LOOKUP_H

#include "guard/guard.h"
#include "heap/link.h"
#include "heap/sizeclass.h"
#include "pages/map.h"

// The class of the block in use at p, whose address has this tag, told by the tests of the fast paths: of any thread's
// heap, and without a look at what others write. 0: p must be looked up.
QY_INLINE unsigned qy_block_class(const void *p, qy_tag_t tag) {
    unsigned c = tag & QY_TAG_CLASS;
    if (!tag || (tag & QY_TAG_PURGED)) return 0;
    return qy_class_is_start(c, qy_class_offset(c, p)) && !qy_link_may_be(p) ? c : 0;
}

typedef enum qy_object_kind {
    QY_OBJECT_BLOCK,
    QY_OBJECT_RUN,
    QY_OBJECT_HUGE,
    QY_OBJECT_FOREIGN,   // no memory of this heap, or not in use
    QY_OBJECT_INTERIOR,  // inside one of ours, not its start
    QY_OBJECT_FREE,      // the start of one that is free already
    QY_OBJECT_NEVER,     // in a slab, where no block is, or none was yet
    QY_OBJECT_ZERO,      // what malloc(0) returned (zero.h)
    QY_OBJECT_NO_ZERO,   // an address there that is not in use
    QY_OBJECT_GUARDED,   // beside a page without access (guards.h)
} qy_object_kind_t;

typedef struct qy_object {
    qy_object_kind_t kind;
    qy_chunk_t *chunk;  // of a block or run
    qy_slab_t *slab;    // of a block or run
    qy_huge_t *huge;    // of a huge object, or what lies in it
    size_t usable;      // bytes
} qy_object_t;

// Is there a space of guarded blocks that is the heap's? Set once, by guards.c.
extern QY_HIDDEN _Atomic bool qy_lookup_guards;
// Does p lie in it?
QY_INLINE bool qy_lookup_is_guarded(const void *p) {
    return QY_UNLIKELY(atomic_load_explicit(&qy_lookup_guards, memory_order_acquire)) && qy_guard_is_near(p);
}

qy_object_t qy_lookup(const void *p);

// The same for a pointer the caller was given to free or resize: anything but an object in use is a
// fault, reported in one line, and does not return.
qy_object_t qy_lookup_must(const void *p);

// The heap that an object in use belongs to; NULL: a large or guarded one that is nobody's.
qy_heap_t *qy_owner(qy_object_t o);

#endif
