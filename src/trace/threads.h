// SPDX-License-Identifier: MIT
// threads.h: the writers of all threads; for record.c.
#ifndef QY_TRACE_THREADS_H
#define QY_TRACE_THREADS_H

#include "trace/recording.h"

// The calling thread's name, if it is another one than was told, and for the first time than the program's. Between
// begin and end.
void qy_thread_tell_name(qy_writer_t *w);
// A writer for the calling thread, which has none: set up, its first record written. NULL: no memory.
qy_writer_t *qy_thread_enter(void);
// The same as a child of fork sees it: unmap what the parent's threads had mapped, forget them. If the
// calling thread is in the middle of a record (fork in a signal handler), what it still writes goes nowhere.
void qy_threads_forget(void);
// `live` is 0: wait, a second at most, until nobody but `self` is in the middle of a record. False: some are.
bool qy_threads_settle(const qy_writer_t *self);
// For an ended recording that has settled: seal the blocks of all threads that were seen to be in no record. `tell`:
// with the names that they have, and which are gone. Not of a recording that stopped before: they may end in order.
void qy_threads_seal(bool tell);
// Records in open blocks; with the lock.
uint64_t qy_threads_open_events(void);

#endif
