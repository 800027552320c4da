// SPDX-License-Identifier: MIT
// purging.h: the clock by which free memory grows old, the lock under which it goes back, and how much went.
//
// Time is counted in epochs (heap/purge.h says how long one is). What becomes free remembers the epoch.
#ifndef QY_PAGES_PURGING_H
#define QY_PAGES_PURGING_H

#include "pages/types.h"

uint32_t qy_purging_epoch(void);
// The next one begins. Returns its number. For one thread at a time.
uint32_t qy_purging_next_epoch(void);
bool qy_purging_runs(void);  // is memory given back at all? (option purge)

// Held while pages are with the kernel. Two rounds never overlap, and a fork waits for it: in the child, units that are
// with the kernel just then would be nobody's.
qy_lock_t *qy_purging_lock(void);

// The one place where pages go back whose address space stays. docs/design.md has a table of callers. False:
// the kernel refuses, perhaps halfway. Under the lock above.
bool qy_purging_pages(char *base, size_t bytes);

// Statistics: `bytes` went back otherwise: with their address space.
void qy_purging_count(size_t bytes);
size_t qy_purging_counted(size_t *ret_bytes);

#endif
