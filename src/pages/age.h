// SPDX-License-Identifier: MIT
// age.h: how long free memory waits before it goes back to the kernel, in epochs (purge.h).
//
// Two at first, which is the option purge_delay. What goes back and is needed again soon has cost a system call, page
// faults and pages that the kernel cleared, for nothing; so it is watched: when as much as half of what went back is
// taken again within sixteen times the option (perhaps some of what went before), what comes next waits four and then
// eight times as long; when it has not, half as long, down to the option.
//
// A program that takes no pages for four epochs rests. Then what is free waits no longer than the option says, whatever
// was learned.
#ifndef QY_PAGES_AGE_H
#define QY_PAGES_AGE_H

#include <stddef.h>
#include <stdint.h>

#define QY_AGE_LEAST 2u

#define QY_AGE_RESTS 4u  // epochs

uint32_t qy_age(void);  // QY_AGE_LEAST times 1 to 8

// An epoch is over, in which so much went back because it was old enough; 0 is worth saying too. One thread at a time:
// who has the
// purge lock.
void qy_age_given(size_t bytes);

// Pages are taken into use, whether they had gone back or not. Any thread, any locks; two at once may count as one.
void qy_age_taken(void);

// Memory that had gone back is taken again. Any thread, any locks; nothing to do, mostly.
void qy_age_again(size_t bytes);

#endif
