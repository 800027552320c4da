// SPDX-License-Identifier: MIT
// purge.h: giving memory back to the kernel while the program idles, without its help.
//
// Time is counted in epochs of half the option purge_delay. Free units and
// slabs remember the epoch (pages/purging.h) they were last touched in; what stays untouched for two epochs goes back,
// or for some more where that was too early before (purging.h).
// A thread of its own does it, the helper (helper.h). Where that cannot be had, slow paths do it when an epoch has
// passed, each for its own heap and the shared layers.
#ifndef QY_HEAP_PURGE_H
#define QY_HEAP_PURGE_H

#include "heap/types.h"

// From here on waste is seen to (waste.h).
void qy_purge_begin(void);

// The kernel has no more memory, or trim: give back all that is free, now, but for about `keep`
// bytes. Takes locks; the caller holds none. Bytes that went back.
size_t qy_purge_all(size_t keep);
void qy_purge_everything(void);

// The process ends. The exit handlers of its libraries touch pages that were never touched; where much is free a part
// of it goes, so that they do not make the peak. Nothing where a lock is held.
void qy_purge_ending(void);

void qy_purge_after_fork(void);

#endif
