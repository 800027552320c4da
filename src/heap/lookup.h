// SPDX-License-Identifier: MIT
// lookup.h: what a pointer is, exactly. Slow paths, usable_size, realloc.
#ifndef QY_HEAP_LOOKUP_H
#define QY_HEAP_LOOKUP_H

#include "heap/types.h"

typedef enum qy_object_kind {
    QY_OBJECT_BLOCK,
    QY_OBJECT_RUN,
    QY_OBJECT_HUGE,
    QY_OBJECT_FOREIGN,   // no memory of this heap, or not in use
    QY_OBJECT_INTERIOR,  // inside one of ours, not its start
    QY_OBJECT_FREE,      // the start of one that is free already
} qy_object_kind_t;

typedef struct qy_object {
    qy_object_kind_t kind;
    qy_chunk_t *chunk;  // unless foreign
    qy_slab_t *slab;    // of a block or run
    size_t usable;      // bytes
} qy_object_t;

qy_object_t qy_lookup(const void *p);

// The same for a pointer the caller was given to free or resize: anything but an object in use is a
// fault, reported in one line, and does not return.
qy_object_t qy_lookup_must(const void *p);

// The heap that an object in use belongs to; NULL: a large one that is nobody's.
qy_heap_t *qy_owner(qy_object_t o);

#endif
