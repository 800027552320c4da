// SPDX-License-Identifier: MIT
// locks.h: all locks of the heap and its pages, in the order in which a thread may take them.
//
// A thread that waits for a lock holds none of a later rank. It holds one heap's lock at most; a second one only by
// try. The lock of a heap that it walks does not count: it is out (rt/lock.h). The statistics page's own lock is taken
// by try, before any other. A fork freezes all of them in this order.
#ifndef QY_HEAP_LOCKS_H
#define QY_HEAP_LOCKS_H

#include "heap/types.h"

typedef enum qy_lock_rank {
    QY_RANK_PURGING,     // pages are with the kernel (pages/purging.h)
    QY_RANK_HEAPS_LIST,  // the set of heaps (heaps.c)
    QY_RANK_HEAP,        // each heap
    QY_RANK_UNITS,       // the page layer (pages/chunk.h)
    QY_RANK_HUGE,        // huge objects (huge.c)
    QY_RANK_MAP,         // the tables of addresses (pages/map.h)
    QY_RANK_THREADS,     // threads' records (thread.c)
    QY_RANK_SAMPLES,     // what is known of sampled blocks (samples.h)
    QY_RANK_GUARDS,      // which drawn requests are guarded (guards.h)
    QY_RANK_REPORT,      // what is told of guarded blocks (guards_report.h)
    QY_RANK_GUARD,       // guarded blocks (guard/guard.h)
    QY_RANK_META,        // memory for records (pages/meta.h)
    QY_RANKS,
} qy_lock_rank_t;

// Calls fn for each lock from this rank on, in order.
void qy_locks_each(qy_lock_rank_t from, void (*fn)(qy_lock_t *lock, uint64_t arg), uint64_t arg);

// Is it so of any of them?
bool qy_locks_any(bool (*is)(const qy_lock_t *lock));

// In builds that check: from here on a thread that takes a lock out of order ends the process.
void qy_locks_check_order(void);

#endif
