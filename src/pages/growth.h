// SPDX-License-Identifier: MIT
// growth.h: before the page layer has more pages than ever, free ones go back instead.
//
// Free pages wait some time for the next request that needs them. A request that they do not fit would raise the peak
// while they serve nobody. So as many go back as come new, once the page layer has as many as it ever had; below that
// nothing is done. Where the page layer has no free ones, it says so to its caller, who may have some
// (qy_growth_wants). There is only so much of it per second (purging.h).
#ifndef QY_PAGES_GROWTH_H
#define QY_PAGES_GROWTH_H

#include "pages/types.h"

// Units were taken. Under the lock of the page layer, which is let go meanwhile, perhaps. A few instructions, mostly.
void qy_growth_of_units(void);

// The caller of the page layer keeps so many bytes that nobody uses, which could go back in place of free units.
void qy_growth_beside(size_t bytes);
size_t qy_growth_is_beside(void);
// Those, and free units that are touched.
size_t qy_growth_idle_bytes(void);

// Whoever takes units asks afterwards, without the lock: how many of those bytes should go back now? Says it to one,
// once.
extern QY_HIDDEN _Atomic size_t qy_growth_wanted;
QY_INLINE size_t qy_growth_wants(void) {
    if (QY_LIKELY(!atomic_load_explicit(&qy_growth_wanted, memory_order_relaxed))) return 0;
    return atomic_exchange_explicit(&qy_growth_wanted, 0, memory_order_relaxed);
}
// Of `wanted` bytes these went back.
void qy_growth_went(size_t wanted, size_t bytes);

#endif
