// SPDX-License-Identifier: MIT
// purging.h: when pages go back to the kernel: how many after which event, and from which budget. Here is also the one
// place where they leave, its lock, and the clock by which free memory grows old.
//
// An event is seen where it happens. That place asks how much may go, takes the lock, gives back, and says what went.
// The table of events is in purging.c; docs/design.md has it with the reasons.
#ifndef QY_PAGES_PURGING_H
#define QY_PAGES_PURGING_H

#include "pages/types.h"

typedef enum qy_purging_event {
    QY_PURGING_AGED,       // an epoch is over: what nobody used for some of them is old (qy_age)
    QY_PURGING_GROWTH,     // more pages than ever would be in use
    QY_PURGING_RUN_OLD,    // a run ends that lived long
    QY_PURGING_RUN_FIRST,  // a run ends that is the first of its size
    QY_PURGING_YOUNG,      // far too much is free in a process of one thread
    QY_PURGING_ALONE,      // too much is free, and no helper can be had
    QY_PURGING_ENDING,     // the process ends
    QY_PURGING_EVENTS
} qy_purging_event_t;

// How many of the `asked` bytes may go now. The rule may take a part of `all`: the bytes that are there, used or free.
size_t qy_purging_may(qy_purging_event_t event, size_t asked, size_t all);
// So much stays when this happens.
size_t qy_purging_keeps(qy_purging_event_t event);
// So many bytes went.
void qy_purging_pay(qy_purging_event_t event, size_t bytes);
// The kernel did not take what might go: locked memory, say. It is not tried again for a second.
void qy_purging_refused(qy_purging_event_t event);
// Bytes that went are in use again, which is when most of them are paid for.
void qy_purging_again(qy_purging_event_t event, size_t bytes);

// What goes back early and is needed again costs a fault for each page. So there is only so much of it per second: some
// 1,500 pages, a few thousandths of the time. A budget is the time up to which what went is paid for. What is not spent
// is saved, up to a burst. What is spent may go beyond what is left, and is paid for later.
#define QY_PURGING_RATE ((uint64_t)6 << 20)  // bytes a second
typedef struct qy_purging_budget {
    _Atomic uint64_t spent_until;  // ns of qy_os_now_coarse_ns. A race miscounts some bytes
} qy_purging_budget_t;
extern qy_purging_budget_t qy_purging_of_growth, qy_purging_of_runs;

// Time is counted in epochs (heap/purge.h says how long one is). What becomes free remembers the epoch.
uint32_t qy_purging_epoch(void);
// The next one begins. Returns its number. For one thread at a time.
uint32_t qy_purging_next_epoch(void);

// Held while pages are with the kernel. Two rounds never overlap, and a fork waits for it: in the child, units that are
// with the kernel just then would be nobody's.
qy_lock_t *qy_purging_lock(void);

// The one place where pages go back whose address space stays. False: the kernel refuses, perhaps halfway. Under the
// lock above.
bool qy_purging_pages(char *base, size_t bytes);

// `bytes` went back otherwise: with their address space. And so many came with new address space.
void qy_purging_unmapped(size_t bytes);
void qy_purging_mapped(size_t bytes);

// Statistics: how often and how much went back.
size_t qy_purging_counted(size_t *ret_bytes);

// Regret is what went back for nothing: bytes that are taken again less than a second later. Of mappings nobody knows
// which bytes of the new one are those of the old one. So as many count as come within that second, at most as many as
// went. These `bytes` are taken again, and went at `since_ns` (qy_os_now_coarse_ns). Any thread, any locks.
#define QY_PURGING_REGRET_NS UINT64_C(1000000000)
void qy_purging_regret(size_t bytes, uint64_t since_ns);
size_t qy_purging_regretted(void);

// ---- how long free memory waits ---------------------------------------------------------------------------
//
// It waits two epochs at first, which is the option purge_delay. What goes back and is needed again soon has cost a
// system call, page faults and pages that the kernel cleared, for nothing. So it is watched. When half of what went
// back is taken again within sixteen times the option (perhaps some of what went before), what comes next waits four
// and then eight epochs and more. When it is not, the wait is halved, down to the option.
//
// A program that takes no pages for four epochs rests. Then what is free waits no longer than the option says, whatever
// was learned.

#define QY_AGE_LEAST 2u  // epochs
#define QY_AGE_RESTS 4u

uint32_t qy_age(void);  // QY_AGE_LEAST times 1 to 8

// An epoch is over, in which so many bytes went back because they were old enough; 0 is worth saying too. One thread at
// a time: the one that has the purging lock.
void qy_age_released(size_t bytes);

// Pages are taken into use, whether they had gone back or not. Any thread, any locks; two at once may count as one.
void qy_age_taken(void);

// Memory that had gone back is taken again. Any thread, any locks; nothing to do, mostly.
void qy_age_again(size_t bytes);

#endif
