// SPDX-License-Identifier: MIT
// learn.h: classes of just the size that a program asks for.
//
// Above 1 KiB classes are an eighth of their doubling apart, so a block may be a ninth larger than what was asked for.
// A program that holds tens of thousands of objects of one such size (pages of a database, nodes with a buffer in them)
// pays for that in all of them. So each heap watches, where it refills a list, which step of sizes is asked for; when a
// class of 1 to 8 KiB fills 256 KiB and most of its requests were of one step that leaves a thirty-second of the block
// or more, the heap gets a class of that step's size for it and what is smaller. What was allocated before stays as it
// is.
//
// There are 15 such classes in a process; a heap that learns the size of one that is there shares its number. A class,
// once learned, stays.
#ifndef QY_HEAP_LEARN_H
#define QY_HEAP_LEARN_H

#include "heap/types.h"

// n bytes are asked for, of class c, in h, which is locked. A few instructions.
void qy_learn_asked(qy_heap_t *h, unsigned c, size_t n);

// h, which is locked, has a new slab of class c: perhaps the next one should be of another class. Changes cls and its
// version. Takes the lock of the page layer when it does.
void qy_learn(qy_heap_t *h, unsigned c);

#endif
