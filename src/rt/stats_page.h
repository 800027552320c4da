// SPDX-License-Identifier: MIT
// stats_page.h: where the statistics page of this process is; include/quarry/stats_page.h says what is in it.
//
// A trivial program has none: it is made when QY_STATS_PAGE_MIN bytes have gone through the slow paths. Making it takes system calls that
// a program in a sandbox may be killed for. Such a program has the option purge_thread:off, since the purging thread is a case of the
// same kind; then the page is made at the start, or never.
//
// After a fork the child has none, however it was forked: its memory does not have the page, and the word that says where it is lies in
// memory that the kernel wipes. So no child can write into its parent's page, nor where that was. It gets its own as its parent did,
// and at once if it is large.
#ifndef QY_RT_STATS_PAGE_H
#define QY_RT_STATS_PAGE_H

#include <quarry/stats_page.h>
#include <stdbool.h>

#include "base/compiler.h"
#include "rt/lock.h"

#define QY_STATS_PAGE_MIN ((size_t)256 << 10)
#define QY_STATS_PAGE_CHILD_LARGE ((size_t)16 << 20)  // heap or pools; a smaller child most likely executes another program

// From constructors, when the options have been read: `part` (as in the head) will write to the page. Before, there is none. `made` is
// called whenever there is a new page, by whoever made it, with any locks held; NULL: nobody need be told.
void qy_stats_page_start(uint32_t part, void (*made)(void));

// The page, or NULL. Valid until the calling thread returns to the program, or forks. Threads: any; no locks.
quarry_stats_page_t *qy_stats_page(void);

// `bytes` more have gone through slow paths. Is there a page? May make it. Threads: any; any locks of heap and pools may be held.
bool qy_stats_page_moved(size_t bytes);

// Which page it is of those that this process and its ancestors had: changes when a child gets its own. 0: there never was one.
uint32_t qy_stats_page_number(void);

// In a child, from fork handlers. `large`: make its page now. True: it has one.
bool qy_stats_page_in_child(bool large);

// Around all writing to the page, and before asking where it is. A signal handler may fork meanwhile, and its child return from it: then what it goes on to write is
// lost. Threads: any, also at once.
void qy_stats_page_writing(void);
void qy_stats_page_written(void);

qy_lock_t *qy_stats_page_lock(void);  // for fork.c: last in the order of locks

// Words of the page are read by others while they are written.
QY_INLINE void qy_stats_put(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELAXED); }
QY_INLINE void qy_stats_add(uint64_t *word, uint64_t value) { qy_stats_put(word, __atomic_load_n(word, __ATOMIC_RELAXED) + value); }

#endif
