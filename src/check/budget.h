// SPDX-License-Identifier: MIT
// budget.h: what guarded blocks may cost, and which blocks are worth it.
//
// A guarded block costs some 10 us. There is a credit of time: START_NS at the begin, and then a share of the process's
// processor time, up to as much again. Three kinds of blocks are guarded, and each may use the credit down to a floor
// of its own, so that the first kind is served when the others wait:
//
//   the first four of each call site     down to nothing
//   the first two of each call stack     down to a quarter
//   the first sixteen of each stack; later ones with a chance of 16 to their number; blocks of pages     down to a half
//
// A call site is the innermost four frames: a program that recurses has new stacks for ever, and few sites. So each
// place that allocates has its turn early, however short the program is; a place that is wrong each time is found then,
// and one that is wrong now and then has its chance later.
#ifndef QY_CHECK_BUDGET_H
#define QY_CHECK_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Is the `ordinal`th block of this stack, of n bytes, to be guarded? Any thread.
bool qy_check_budget_allows(uint32_t stack, uint64_t ordinal, size_t n);
// It was.
void qy_check_budget_spend(void);

#endif
