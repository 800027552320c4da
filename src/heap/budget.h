// SPDX-License-Identifier: MIT
// budget.h: how much threads' caches keep: the more threads there are, the less each.
//
// Nobody but its thread can empty a cache, and a thread that sleeps does not. So a thread empties it while it works:
// each time that
// a period of bytes went into or out of its lists on the slow paths, the lists of classes that it did not fill or empty
// meanwhile go home (qy_lists_sweep). What it sleeps on is what it worked with just before. Where there are many
// threads the period is shorter, and so are generations; blocks of more than a generation are not cached then.
#ifndef QY_HEAP_BUDGET_H
#define QY_HEAP_BUDGET_H

#include "heap/sizeclass.h"
#include "heap/types.h"

#define QY_BUDGET_BYTES ((size_t)16 << 20)       // all threads' periods together, ...
#define QY_BUDGET_PERIOD_MOST ((size_t)1 << 20)  // ... but each at most this, ...
#define QY_BUDGET_PERIOD_LEAST ((size_t)64 << 10)
#define QY_BUDGET_PART 8u  // generations in a period, where that is less than what generations are anyway

extern QY_HIDDEN _Atomic uint32_t qy_budget_period_now, qy_budget_generation_now;

// A thread has a cache now, or has none any more.
void qy_budget_enter(void);
void qy_budget_leave(void);
void qy_budget_after_fork(void);  // in the child: there is one thread

QY_INLINE uint32_t qy_budget_period(void) { return atomic_load_explicit(&qy_budget_period_now, memory_order_relaxed); }

// Are generations shorter than qy_class_limit says?
QY_INLINE bool qy_budget_is_short(void) {
    return QY_UNLIKELY(atomic_load_explicit(&qy_budget_generation_now, memory_order_relaxed) < QY_GENERATION_MOST);
}

// Blocks in a generation of class c. 0: its blocks are not cached.
QY_INLINE unsigned qy_budget_limit(unsigned c) {
    if (!qy_budget_is_short()) return qy_class_limit[c];
    uint32_t bytes = atomic_load_explicit(&qy_budget_generation_now, memory_order_relaxed);
    return (unsigned)qy_min(qy_class_limit[c], bytes / qy_class_size[c]);
}

#endif
