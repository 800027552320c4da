// SPDX-License-Identifier: MIT
// allowance.h: how much may go back before it is old.
//
// What goes back early and is needed again costs a fault for each page. So there is only so much of it per second: some
// 1,500 pages, a few thousandths of the time. An allowance is the time up to which what went is paid for. What is not
// spent is saved, up to a burst.
#ifndef QY_PAGES_ALLOWANCE_H
#define QY_PAGES_ALLOWANCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define QY_ALLOWANCE_RATE ((uint64_t)6 << 20)  // bytes a second

typedef struct qy_allowance {
    _Atomic uint64_t spent_until;  // ns of qy_os_now_ns. A race miscounts some bytes
} qy_allowance_t;

// Is anything left at `now`? At most `burst` bytes are saved. What is spent may go beyond what is left, and is paid for
// later.
bool qy_allowance_left(qy_allowance_t *a, uint64_t now, uint64_t burst);
void qy_allowance_spend(qy_allowance_t *a, uint64_t bytes);
// Nothing is left for a second: what could not go is not tried again soon.
void qy_allowance_suspend(qy_allowance_t *a, uint64_t now);

// For pages at the peak (growth.h).
extern qy_allowance_t qy_allowance_of_growth;
// For runs that end (heap/run_give.h). A page that nobody has again costs next to nothing, so most is paid for when
// somebody does.
extern qy_allowance_t qy_allowance_of_runs;
#define QY_ALLOWANCE_TRUST 8u  // this part is paid for at first

// Pages that a run gave back are taken again.
void qy_allowance_of_runs_again(uint64_t bytes);

#endif
