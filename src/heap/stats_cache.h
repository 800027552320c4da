// SPDX-License-Identifier: MIT
// stats_cache.h: how much is free in threads' caches, for the statistics page.
//
// Who works counts its own cache, now and then. Who sleeps does not. So others count the lists of those that did not
// touch them for a while. A thread that wakes meanwhile may change them under its eyes: it reads blocks that are in the
// map only, while nothing can be unmapped, and follows no link whose mark is wrong.
#ifndef QY_HEAP_STATS_CACHE_H
#define QY_HEAP_STATS_CACHE_H

#include "heap/types.h"

// The calling thread counts, if that is due.
void qy_stats_count_cache(qy_thread_t *t);

// The thread's cache is empty now, and its record may go.
void qy_stats_cache_emptied(qy_thread_t *t);

// Count for those who did not touch their lists since the last call. Under the page's lock; also from the purging
// thread.
void qy_stats_count_sleepers(void);

// Bytes in all caches, as was last counted.
size_t qy_stats_cached(size_t *ret_blocks);
// The same by class: so many blocks are in a thread's cache.
void qy_stats_cached_of(void (*add)(void *arg, unsigned c, size_t blocks), void *arg);

#endif
