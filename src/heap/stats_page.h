// SPDX-License-Identifier: MIT
// stats_page.h: the heap's part of the statistics page (rt/stats_page.h), kept up to date from the slow paths and by
// the purging thread.
//
// Each thread counts the bytes it moves through its slow paths, and after some of them asks whether the page is out of
// date. Sums are taken in the time of a few locks for each heap; the list of classes needs a walk over all slabs and is
// made less often. Both are paid from a budget: a five-hundredth of the time (a hundredth while the heap changes its
// size), so a large heap writes more rarely. Where a 32nd of the live bytes moves within a moment, sums are written
// out of as much time again, which is saved up.
//
// Locks: the page's own is taken by try and before any other; purging's and the heaps' are taken by try too. A heap
// that stays busy leaves the page as it was.
#ifndef QY_HEAP_STATS_PAGE_H
#define QY_HEAP_STATS_PAGE_H

#include "heap/types.h"

// From the constructor, with the heap up.
void qy_stats_page_begin(void);

// `moved` bytes have gone through slow paths: bring it up to date if that is due. No locks are held.
void qy_stats_page_look(size_t moved);
// After this many bytes a thread looks at the latest.
#define QY_STATS_PAGE_MOVED ((size_t)1 << 20)

// From the purging thread, after each of its rounds.
void qy_stats_page_round(void);

// In the child of a fork, when the locks are open again; or, `inside`, when this thread may hold some of them still,
// because a signal handler forked.
void qy_stats_page_after_fork(bool inside);

#endif
