// SPDX-License-Identifier: MIT
// lists.h: what becomes of a thread's lists when it needs them no longer: they go home to their slabs, or stay with the
// heap.
//
// A thread that ends soon after it began leaves its lists of small blocks to its heap as they are (parked): nothing is
// walked, and the next thread that takes the heap has them in its cache from the start. So that nothing gathers, all
// that may have come into the lists since they were empty is summed up, counted too high rather than too low; where
// that is much, or a list filled up, the thread has lived long enough to bring them home.
//
// To all others parked blocks are as if in a cache, but who has the heap's lock may bring them home: purging and trim
// do, who counts the heap's blocks, and who takes slabs over. All blocks on lists parked with a heap lie in slabs of
// that heap.
#ifndef QY_HEAP_LISTS_H
#define QY_HEAP_LISTS_H

#include "heap/types.h"

// The calling thread's lists of class c are empty from here on. Returns what was in the newer one, NULL if nothing.
qy_block_t *qy_lists_empty(qy_thread_t *t, unsigned c, qy_block_t **ret_prev);
bool qy_lists_are_empty(const qy_thread_t *t, unsigned c);

// It is the turn of the classes up to `end` in this period (cache.h): lists of those that were idle since their last
// turn go home, so many blocks in one call: a microsecond's worth, where none is in the processor's cache. True: there
// are more, for the next call. The calling thread holds no locks.
#define QY_LISTS_SWEEP 8u
bool qy_lists_sweep(qy_thread_t *t, unsigned end);

// The thread ends: park its lists, or bring them home. Its cache is empty then. Returns bytes that came home.
size_t qy_lists_leave(qy_thread_t *t);

// Into the empty cache of a new thread. Its heap is locked.
void qy_lists_inherit(qy_thread_t *t);

// Bring home what is parked with h, which is locked, and what is in its depot: all of it, or of one class.
void qy_lists_unpark(qy_heap_t *h);
void qy_lists_unpark_class(qy_heap_t *h, unsigned c);

#endif
