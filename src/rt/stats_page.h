// SPDX-License-Identifier: MIT
// stats_page.h: where the statistics page of this process is; include/quarry/stats_page.h says what is in it.
//
// It is zero-initialised data of the library. So nothing of the system is made for it, no call is needed at any time,
// nobody can deny it, and it ends with the process. A trivial program does not touch it: it is opened when
// QY_STATS_PAGE_MIN bytes have gone through the slow paths.
//
// After a fork the child's page is closed and names no process. The child opens it as its parent did, and at once if it
// is large. A child that was made without fork handlers (vfork, a raw clone) has a copy that names its parent, and
// readers do not take it.
#ifndef QY_RT_STATS_PAGE_H
#define QY_RT_STATS_PAGE_H

#include <quarry/stats_page.h>
#include <stdbool.h>

#include "base/compiler.h"

#define QY_STATS_PAGE_MIN ((size_t)256 << 10)
// heap or pools; a smaller child most likely executes another program
#define QY_STATS_PAGE_CHILD_LARGE ((size_t)16 << 20)

// Bits of a pool's `turn`.
#define QY_STATS_PAGE_WRITING UINT64_C(1)
#define QY_STATS_PAGE_TAKEN UINT64_C(2)

// What the sampler tells, and what it is told (heap/draw.h, heap/samples.h): apart from the page, which is not touched
// before it is open. [const] but as they say.
extern QY_HIDDEN quarry_stats_page_sampler_t qy_stats_sampler;

// From constructors, when the options have been read: `part` (as in the head) will write to the page. Before, there is
// none. `made` is called whenever the page was opened, by whoever did it, with any locks held; NULL: nobody need be
// told.
// The process hears of forks from now on. Until then it may have become the child of one.
void qy_stats_page_process(void);
// What is called each time before the page is opened: its opener must hear of forks from then on.
void qy_stats_page_before(void (*fn)(void));
void qy_stats_page_start(uint32_t part, void (*made)(void));

// The page, or NULL while it is closed. Who writes to it when it is closed harms nobody. Threads: any; no locks.
quarry_stats_page_t *qy_stats_page(void);

// `bytes` more have gone through slow paths. Is the page open? May open it. Threads: any; any locks of heap and pools
// may be held.
bool qy_stats_page_moved(size_t bytes);

// Which page it is of those that this process and its ancestors had: changes when a child opens its own. 0: there never
// was one.
uint32_t qy_stats_page_number(void);

// In a child, from the fork handlers of each part. `large`: open the page now. True: it is open.
bool qy_stats_page_in_child(uint32_t part, bool large);

// Words of the page are read by others while they are written.
QY_INLINE void qy_stats_put(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELAXED); }
QY_INLINE void qy_stats_add(uint64_t *word, uint64_t value) {
    qy_stats_put(word, __atomic_load_n(word, __ATOMIC_RELAXED) + value);
}

#endif
