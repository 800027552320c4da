// SPDX-License-Identifier: MIT
// guard.h: pages without access that are no mappings of their own.
//
// Linux 6.13 and later mark single pages of a mapping: an access to one is a fault, and the table of mappings stays as
// it is. Elsewhere access is taken by mprotect, which makes a mapping of each range: a process may have 65,530 in all.
//
// Threads: all. Addresses are of private writable memory without a file.
#ifndef QY_OS_GUARD_H
#define QY_OS_GUARD_H

#include <stdbool.h>
#include <stddef.h>

// Are there such pages? Tried once, on a page of its own: an answer alone is not believed.
bool qy_os_guards_work(void);

// No access from now on, and the memory goes back. False: nothing has changed, or only the beginning. Locked pages of
// Linux before 6.15 are refused.
bool qy_os_guard(void *addr, size_t bytes);
// Access again: pages that were guarded read as zero. False: some still are without access.
bool qy_os_unguard(void *addr, size_t bytes);

// Address space as by qy_os_reserve, of which what is made writable is not charged, unless the system never
// overcommits. NULL on failure.
void *qy_os_reserve_uncharged(size_t bytes);

// How many mappings a process may have.
size_t qy_os_mappings_most(void);

#endif
