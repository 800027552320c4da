// SPDX-License-Identifier: MIT
// purge.h: giving memory back to the kernel while the program idles, without its help.
//
// Time is counted in epochs of half the option purge_delay. Free units, cached huge objects and
// slabs remember the epoch they were last touched in; what stays untouched for two epochs goes back,
// or for some more where that was too early before (age.h).
// A thread of its own does it, the helper (helper.h). Where that cannot be had, slow paths do it when an epoch has passed, each for its
// own heap and the shared layers.
#ifndef QY_HEAP_PURGE_H
#define QY_HEAP_PURGE_H

#include "heap/types.h"

uint32_t qy_purge_epoch(void);
bool qy_purge_epoch_runs(void);  // is memory given back at all? (option purge)

// Units or a huge object became free: see to it that they go back in time. Cheap; any locks but
// those of pages and huge objects may be held.
void qy_purge_wanted(void);

// Blocks came home to h (locked): the same for its slabs.
void qy_purge_consider(qy_heap_t *h);

// `bytes` were handed to h's mailbox: if its owner sleeps, somebody must take them in.
void qy_purge_mailed(qy_heap_t *h, size_t bytes);

// The kernel has no more memory, or trim: give back all that is free, now, keeping about `keep`
// bytes of free units. Takes locks; the caller holds none. Bytes that went back.
size_t qy_purge_all(size_t keep);
void qy_purge_everything(void);

// The process ends. The exit handlers of its libraries touch pages that were never touched; where much is free a part of it goes, so
// that they do not make the peak. Nothing where a lock is held.
void qy_purge_ending(void);

// Statistics: `bytes` went back.
void qy_purge_count(size_t bytes);
size_t qy_purge_counted(size_t *ret_bytes);

// For a walk over slabs that lets go of their heap's lock now and then: until qy_purge_let_go no purging goes on, and each heap's
// purge_at is the caller's. By try.
typedef enum qy_purge_hold {
    QY_PURGE_BUSY,
    QY_PURGE_HELD,
    QY_PURGE_INLINE,  // nothing is held: without a thread purge_at is in use from one round to the next
} qy_purge_hold_t;
qy_purge_hold_t qy_purge_hold(void);
void qy_purge_let_go(void);

qy_lock_t *qy_purge_lock(void);  // for fork.c
void qy_purge_after_fork(void);

#endif
