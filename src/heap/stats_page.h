// SPDX-License-Identifier: MIT
// stats_page.h: the heap's part of the statistics page (rt/stats_page.h), kept up to date from the slow paths and by the purging
// thread.
//
// Each thread counts the bytes it moves through its slow paths, and after some of them asks whether the page is out of date. Sums are
// taken in the time of a few locks for each heap; the list of classes needs a walk over all slabs and is made less often. Both are
// paid from a budget: a five-hundredth of the time (a hundredth while the heap changes its size), so a large heap writes more rarely.
//
// Locks: the page's own is taken by try and before any other; purging's and the heaps' are taken by try too. A heap that stays
// busy leaves the page as it was.
#ifndef QY_HEAP_STATS_PAGE_H
#define QY_HEAP_STATS_PAGE_H

#include "heap/cache.h"
#include "heap/types.h"

// From the constructor, with the heap up.
void qy_stats_page_begin(void);

// The calling thread has moved t->moved bytes: its turn to see whether the page is out of date. No locks are held.
void qy_stats_moved_much(qy_thread_t *t);
// The same for a caller without a record: large objects need none.
QY_COLD void qy_stats_moved_without(size_t bytes);

// `bytes` went from the heap to a thread or the other way, on a slow path. No locks are held.
QY_INLINE void qy_stats_moved(qy_thread_t *t, size_t bytes) {
    t->moved += bytes;
    if (QY_UNLIKELY(t->moved >= t->moved_most)) qy_stats_moved_much(t);
}
QY_INLINE void qy_stats_moved_here(size_t bytes) {
    qy_thread_t *t = QY_CACHE->thread;
    if (QY_LIKELY(t != NULL)) qy_stats_moved(t, bytes);
    else qy_stats_moved_without(bytes);
}

// From the purging thread, after each of its rounds.
void qy_stats_page_round(void);

// In the child of a fork, when the locks are open again; or, `inside`, when this thread may hold some of them still, because a signal
// handler forked.
void qy_stats_page_after_fork(bool inside);

#endif
