// SPDX-License-Identifier: MIT
// quarantine.h: freed blocks wait here before the heap gets them, so that a write to one of them is seen, and a second
// free is told from a first.
//
// The oldest leaves first. A few stripes, each with its lock, so that threads seldom meet; a thread keeps to one. Bytes
// are those that the heap has given for the blocks. By default there may be a quarter of the live bytes and 8 MiB
// more, at most 256 MiB.
#ifndef QY_CHECK_QUARANTINE_H
#define QY_CHECK_QUARANTINE_H

#include "check/records.h"
#include "rt/lock.h"

#define QY_CHECK_STRIPES 8u

// More or fewer bytes are live.
void qy_check_live_add(int64_t bytes);
size_t qy_check_live_bytes(void);

// The place's record is FREED. Blocks that are due leave: `leave` is called for each, without locks.
typedef void qy_check_leave_t(const qy_check_place_t *place);
void qy_check_quarantine(const qy_check_place_t *place, qy_check_leave_t *leave);

// From a hold on no block leaves: memory of each live or waiting block stays mapped, and may be read.
void qy_check_quarantine_hold(void);
void qy_check_quarantine_go_on(void);

typedef struct qy_check_quarantine_stats {
    uint64_t blocks, bytes;  // now
    uint64_t passed;         // blocks that have left
    uint64_t limit;          // bytes
} qy_check_quarantine_stats_t;
qy_check_quarantine_stats_t qy_check_quarantine_stats(void);

qy_lock_t *qy_check_quarantine_lock(unsigned stripe);  // for fork

#endif
