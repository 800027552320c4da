// SPDX-License-Identifier: MIT
// reclaim.h: memory that one class keeps and another one is about to need.
//
// A thread's lists keep blocks of each class that was ever used, each of which keeps a slab from becoming empty, and
// empty slabs of each class stay (qy_slab_settle). That is what makes frees and allocations cheap, and a program that
// goes through phases of different sizes pays for it in memory. So, when a heap has made slabs of an eighth of what it
// holds, all of it goes where another class can take it. Who allocates the same sizes over and over makes slabs because
// of that, and would pay for it each time: it may take a thirty-second of the time.
#ifndef QY_HEAP_RECLAIM_H
#define QY_HEAP_RECLAIM_H

#include "heap/types.h"

// The heap, which is locked, is about to make a slab for class c: perhaps bring home what the calling thread's lists
// hold of other classes, if it is its heap, and release empty slabs.
void qy_reclaim_before_slab(qy_heap_t *h, unsigned c);

#endif
