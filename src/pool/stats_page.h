// SPDX-License-Identifier: MIT
// stats_page.h: pools in the statistics page (rt/stats_page.h): each has an entry from its first chunk on.
//
// An entry is written when the pool gets memory or gives some back, which is also when its kind may be asked without a
// lock. What a pool does in between costs nothing and is seen with the next chunk. When all entries are taken, the rest
// of the pools are one sum.
#ifndef QY_POOL_STATS_PAGE_H
#define QY_POOL_STATS_PAGE_H

#include "pool/pool.h"

// The pool's memory has become more or less by `bytes`. Threads: any; the kind's locks may be held. If another thread
// is writing the entry at this moment, its numbers stand.
QY_COLD void qy_pool_show(quarry_pool_t *pool, size_t bytes, uint64_t now);

// There is a new page: write what all pools hold. Their kinds are not asked, so it does not matter who uses them
// meanwhile. Locks: the list of pools, by try; if it is busy, the next change of a pool does it. (core.c)
void qy_pools_show(void);
bool qy_pools_unshown(void);
void qy_pool_show_held(quarry_pool_t *pool, uint64_t now);

// It goes; nobody else uses it any more.
void qy_pool_hide(quarry_pool_t *pool);

#endif
