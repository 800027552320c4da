// SPDX-License-Identifier: MIT
// budget.h: what guarded blocks may cost, and which blocks are worth it.
//
// A guarded block costs some 5 us, and 3 us for each page after its first. There is a credit of time: START_NS at the
// begin, and then a share of the process's processor time, up to as much again. Four kinds of blocks are guarded, and
// each may use the credit down to a floor of its own, so that the first kind is served when the others wait. The same
// holds for the pages that live blocks have. A block that is used often costs while it lives: it has a page of its own,
// and all blocks that end at the end of a page compete for the same few lines of the cache.
//
//   the first four of each call site     credit down to nothing, all of the pages
//   the first two of each call stack     down to a quarter, half of the pages
//   blocks of a page and more            down to a half, half of the pages
//   the first sixteen of each stack; later ones with a chance of 16 to their number
//                                        down to a half, a quarter of the pages
//
// A call site is the innermost four frames: a program that recurses has new stacks for ever, and few sites. So each
// place that allocates has its turn early, however short the program is; a place that is wrong each time is found then,
// and one that is wrong now and then has its chance later.
#ifndef QY_CHECK_BUDGET_H
#define QY_CHECK_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Is the `ordinal`th block of this stack, of n bytes, to be guarded? 0: no. Else: if the live ones have less than this
// part, one in so many, of the pages that they may have. Any thread.
unsigned qy_check_budget_allows(uint32_t stack, uint64_t ordinal, size_t n);
// A block of n bytes was guarded.
void qy_check_budget_spend(size_t n);

#endif
