// SPDX-License-Identifier: MIT
// sized.h: a free that says how large the block is, or how it is aligned (C++'s sized delete, C23's free_sized). What
// cannot be true ends the process: an object is freed as one of another type.
//
// Only a size beyond the block's end is told. A smaller one is common and harmless here: an object is deleted by a base
// class without a virtual destructor.
#ifndef QY_HEAP_SIZED_H
#define QY_HEAP_SIZED_H

#include "heap/sizeclass.h"
#include "pages/map.h"

// May n bytes be more than the block at p has? Sure is only "no".
QY_INLINE bool qy_size_may_be_wrong(const void *p, size_t n) {
    return n - 1 >= qy_class_size[qy_map_look(p) & QY_TAG_CLASS];
}
QY_INLINE bool qy_align_is_wrong(const void *p, size_t align) { return ((uintptr_t)p & (align - 1)) != 0; }

// Look exactly. Returns unless p is an object in use that has not so many bytes, or begins at no multiple of `align`,
// if that is a power of two: all else is for the free that follows to say.
void qy_sized_check(const void *p, size_t align, size_t n);

#endif
