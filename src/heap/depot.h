// SPDX-License-Identifier: MIT
// depot.h: generations that a thread's cache gave up, kept by its heap as they are.
//
// To bring a list home, each of its blocks must be read: they may be of different slabs. Mostly the same thread wants
// as many blocks of the class soon after. So the heap keeps some whole generations, and a cache that runs empty gets
// one of them: both take the same few instructions, however long the list is. What lies here is free but not at home:
// it keeps slabs from being empty. So
//   - it is little beside the heap: a 32nd of its slabs, or 64 KiB in a small one, and 15 lists of a class. What is
//     more comes back from the slabs in the order of its addresses, which many programs are faster by than they would
//     be without the way home. A list in order loses nothing by staying whole: of these there may be up to half of the
//     heap;
//   - it goes home before the heap takes memory for a slab of any class, and whenever somebody else looks for what is
//     free in the heap: purging, trim, another heap that takes slabs over, who counts blocks, the end of the thread.
// All blocks in a heap's depot lie in slabs of that heap, and each list is of one class. It is
// counted as one generation; nearly twice that if it began with what a slab gave, or longer with what an earlier thread
// left (lists.h).
#ifndef QY_HEAP_DEPOT_H
#define QY_HEAP_DEPOT_H

#include "heap/sizeclass.h"
#include "heap/types.h"

// A full generation of class c for the depot of h, which is locked. False: there is no place for it.
bool qy_depot_put(qy_heap_t *h, unsigned c, qy_block_t *list);

// The newest one of class c, NULL if there is none. h is locked.
qy_block_t *qy_depot_take(qy_heap_t *h, unsigned c);

// Blocks of class c in the depot of h, which is locked: about, as above.
QY_INLINE size_t qy_depot_blocks(const qy_heap_t *h, unsigned c) {
    return h->depot ? (size_t)h->depot->stack[c].count * qy_class_limit[c] : 0;
}

// Bring home all that is in the depot of h, which is locked; or all of one class. Was there anything?
bool qy_depot_home(qy_heap_t *h);
bool qy_depot_home_class(qy_heap_t *h, unsigned c);

// Is it as it should be? NULL, or what is wrong. h is locked.
const char *qy_depot_check(const qy_heap_t *h);

#endif
