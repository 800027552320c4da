// SPDX-License-Identifier: MIT
// walk.h: every live block of a heap, and the verification of its invariants.
#ifndef QY_HEAP_WALK_H
#define QY_HEAP_WALK_H

#include "heap/types.h"

// For any heap whose blocks are all at home or live. A fork of another thread does not wait for it.
int qy_heap_walk(qy_heap_t *h, int (*visit)(void *block, size_t usable, void *arg), void *arg);
// NULL if every invariant that can be seen holds, else what does not. Takes the heap's lock.
const char *qy_heap_verify(qy_heap_t *h);

#endif
