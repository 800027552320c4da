// SPDX-License-Identifier: MIT
// quarantine.h: freed blocks wait here before the heap gets them, so that a write to one of them is seen, and a second
// free is told from a first.
//
// The oldest leaves first. A few stripes, each with its lock, so that threads seldom meet; a thread keeps to one. Bytes
// are those that the heap has given for the blocks. By default there may be a quarter of the live bytes and 8 MiB
// more, at most 256 MiB.
//
// The first threads of the process have an account each, which only they write to: of live bytes, and of blocks that
// they freed since they last had the lock. Numbers of threads are not given again, so an account that is left when its
// thread ends is nobody's: the ROUND - 1 blocks at most in it wait until the end of the process.
#ifndef QY_CHECK_QUARANTINE_H
#define QY_CHECK_QUARANTINE_H

#include "check/records.h"
#include "check/threads.h"
#include "rt/lock.h"

#define QY_CHECK_STRIPES 8u
#define QY_CHECK_ACCOUNTS 16u
#define QY_CHECK_ROUND 16u  // frees of a thread from one look at what is due to the next

typedef struct qy_check_account {
    QY_ALIGNED(QY_CACHE_LINE)
    _Atomic int64_t live;     // bytes; of one account it may be less than 0
    _Atomic int64_t held;     // bytes of the blocks here
    _Atomic bool busy;        // who finds it set has interrupted its owner
    _Atomic uint32_t blocks;  //
    uintptr_t block[QY_CHECK_ROUND];
} qy_check_account_t;
// The one before the first has the live bytes of all other threads, by instructions that lock.
extern QY_HIDDEN qy_check_account_t qy_check_accounts[QY_CHECK_ACCOUNTS + 1];

// More or fewer bytes are live.
QY_INLINE void qy_check_live_add(int64_t bytes) {
    uint16_t number = qy_check_thread_number();
    if (QY_LIKELY(number <= QY_CHECK_ACCOUNTS)) qy_check_count_own(&qy_check_accounts[number].live, bytes);
    else qy_check_count(&qy_check_accounts[0].live, bytes);
}
size_t qy_check_live_bytes(void);

// The block's record is FREED. Blocks that are due leave: `leave` is called for each, without locks.
typedef void qy_check_leave_t(const qy_check_place_t *place);
void qy_check_quarantine(uintptr_t block, size_t room, qy_check_leave_t *leave);

// From a hold on no block leaves: memory of each live or waiting block stays mapped, and may be read.
void qy_check_quarantine_hold(void);
void qy_check_quarantine_go_on(void);
// In the child of a fork: the threads that held it, or let blocks leave, are not there.
void qy_check_quarantine_in_child(void);

typedef struct qy_check_quarantine_stats {
    uint64_t blocks, bytes;  // now
    uint64_t passed;         // blocks that have left
    uint64_t limit;          // bytes
} qy_check_quarantine_stats_t;
qy_check_quarantine_stats_t qy_check_quarantine_stats(void);

qy_lock_t *qy_check_quarantine_lock(unsigned stripe);  // for fork

#endif
