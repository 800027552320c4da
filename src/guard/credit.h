// SPDX-License-Identifier: MIT
// credit.h: the time that guarded blocks may take: a share of the process's processor time, saved up to a limit.
//
// Who spends has several uses for it, and gives each a floor: the less urgent ones end while there is credit left for
// the others.
#ifndef QY_GUARD_CREDIT_H
#define QY_GUARD_CREDIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct qy_guard_credit {
    _Atomic int64_t ns;        // what there is now; begins with what is given at the start
    _Atomic uint64_t tick_ns;  // of the coarse clock, when the processor time was asked for
    _Atomic uint64_t cpu_ns;   // of the process, then
    int64_t most_ns;           // [const]
    uint32_t one_in;           // [const] of so much processor time one part
} qy_guard_credit_t;

// Is there more than `floor`? Any thread. Mostly one load; a system call in each tick of the clock where there is not.
bool qy_guard_credit_has(qy_guard_credit_t *c, int64_t floor_ns);
void qy_guard_credit_spend(qy_guard_credit_t *c, int64_t ns);

#endif
