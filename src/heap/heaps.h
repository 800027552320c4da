// SPDX-License-Identifier: MIT
// heaps.h: the heaps of the process: making them, handing them to threads, locking them.
#ifndef QY_HEAP_HEAPS_H
#define QY_HEAP_HEAPS_H

#include "heap/types.h"

// ---- start-up (init.c) ------------------------------------------------------------------------

// Bring the heap to life if it is not; the first slow call of the process does. False: no memory
// for its tables (to be tried again by the next call). Thread-safe, re-entrant.
extern QY_HIDDEN _Atomic bool qy_heap_up;
bool qy_heap_start(void);
QY_INLINE bool qy_heap_is_up(void) { return atomic_load_explicit(&qy_heap_up, memory_order_acquire); }
QY_INLINE bool qy_heap_init(void) { return QY_LIKELY(qy_heap_is_up()) || qy_heap_start(); }

// Read the options and register what needs a working libc; from the library's constructor.
void qy_heap_constructed(void);

// Are the heap's public names this library's? If not, a library that comes before it has them, as a drop-in that was
// preloaded beside libquarry. Then that one's heap serves the process.
bool qy_heap_is_ours(void);

// ---- their locks ---------------------------------------------------------------------------
// While a fork is prepared the forking thread holds every lock, and other libraries' handlers may
// still allocate on it: it passes through its own locks.

void qy_heap_lock(qy_heap_t *h);
void qy_heap_unlock(qy_heap_t *h);
// Lock the heap that the slab belongs to, which may become another while one waits. A block of it is the caller's, so
// the slab stays.
qy_heap_t *qy_heap_lock_of(const qy_slab_t *s);
QY_INLINE bool qy_heap_trylock(qy_heap_t *h) { return qy_lock_try(&h->lock); }

// ---- the set of heaps (heaps.c) ------------------------------------------------------------------

// A heap for a thread: an idle one if there is, else a new one (or the next of `arenas:N`). The
// caller is attached to it. NULL: no memory.
qy_heap_t *qy_heap_attach(void);
// The thread lets go of it; the last one to do so makes it idle.
void qy_heap_detach(qy_heap_t *h);

// A heap of its own (first-class), or a recycled one; NULL: no memory.
qy_heap_t *qy_heap_new(qy_heap_kind_t kind);
// A destroyed first-class heap, empty: kept for the next one.
void qy_heap_recycle(qy_heap_t *h);

// The heap of those who have none: threads that are being attached, or whose end has begun.
qy_heap_t *qy_heap_shared(void);

// Calls fn for idle heaps, a few at most, until it says true: was that so? Each is locked, by try, so the order of
// heaps' locks does not matter. A heap that is attached meanwhile keeps what is left.
bool qy_heaps_any_idle(bool (*fn)(qy_heap_t *idle, void *arg), void *arg);

// All heaps ever made, newest first; the list only grows.
qy_heap_t *qy_heap_first(void);

qy_lock_t *qy_heaps_lock(void);  // for fork.c and walk.c
// In a fork child: every heap but the caller's has lost its threads.
void qy_heaps_after_fork(qy_heap_t *mine);

size_t qy_heaps_count(size_t *ret_idle);
size_t qy_heaps_threads(void);  // that have one, now
size_t qy_heaps_made(void);     // ever; without a lock
extern _Atomic size_t qy_heap_adoptions;

#endif
