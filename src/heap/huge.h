// SPDX-License-Identifier: MIT
// huge.h: objects that are a mapping of their own each.
#ifndef QY_HEAP_HUGE_H
#define QY_HEAP_HUGE_H

#include "heap/types.h"

// Recycled, never unmapped.
struct qy_huge {
    qy_map_record_t record;            // first: the map finds the object by it
    qy_huge_t *next, *prev;            // [lock: huge] live, stuck or spare ones
    size_t mapped, size;               // [lock: huge] bytes of the mapping; bytes asked for
    bool zeroed;                       // [const] while live: calloc's (clear.h)
    _Atomic(qy_heap_t *) heap;         // [lock: huge] first-class owner or NULL
    qy_huge_t *heap_next, *heap_prev;  // [lock: heap] its list in that heap
};
_Static_assert(offsetof(qy_huge_t, record) == 0, "a record of a huge object is the object's");

// As qy_large_alloc (large.h). It is zero; `zeroed`: that is asked for.
void *qy_huge_alloc(qy_heap_t *h, size_t align, size_t n, bool zeroed);
void qy_huge_free(qy_huge_t *huge);
// Resize in place or by moving its pages. NULL: could not, nothing has changed.
void *qy_huge_resize(qy_huge_t *huge, size_t n);
// A new object of n bytes with the pages of [from, from + bytes) at its beginning, which are gone from there: that is
// as freshly mapped. NULL: could not (not every kernel can), nothing has changed.
void *qy_huge_from(char *from, size_t bytes, size_t n);
qy_huge_t *qy_huge_around(const void *p);  // the huge object that p lies in but not begins, or NULL
// Was one freed before that could be a run?
bool qy_huge_comes_again(void);
bool qy_huge_was_freed(const void *p);  // was one there not long ago (for the message only)
// Try again to unmap what could not be unmapped when it was freed. Returns bytes.
size_t qy_huge_purge(void);
size_t qy_huge_stuck_bytes(void);  // of those: freed, without pages
size_t qy_huge_live_bytes(void);
// Where all of them are, live and stuck: calls fn for each, under the lock.
void qy_huge_places(void (*fn)(const void *base, size_t bytes, void *arg), void *arg);
// All huge objects of a first-class heap (locked), for destroy, walk and statistics.
void qy_huge_release_all(qy_heap_t *h);
int qy_huge_each(qy_heap_t *h, int (*fn)(void *p, size_t usable, void *arg), void *arg);
// How many are live, bytes of these, and of those that are stuck.
void qy_huge_stats(size_t *ret_count, size_t *ret_live, size_t *ret_stuck);

// Are the lists of huge objects as they should be? NULL, or what is wrong. Takes the lock.
const char *qy_huge_check(void);

qy_lock_t *qy_huge_lock(void);  // for locks.c

#endif
