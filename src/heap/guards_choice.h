// SPDX-License-Identifier: MIT
// guards_choice.h: which of the requests that are drawn are guarded.
//
// A guarded block costs some 15 us, and a page while it lives. If it were given to whichever request is drawn, the few
// call sites that allocate most would have all of them. So each site has its turn. A small table remembers, by a hash
// of the innermost frames, how often and when sites were guarded, counted in requests that were drawn. There are three
// classes:
//
//   new     the site is not in the table          may use all of the time and all of the pages
//   due     guarded k times, and 2^k draws ago    may use them down to a quarter
//   recent  guarded k times, and more recently    may use them down to a half
//
// So where time and pages suffice, each drawn request is guarded. Where they do not, a site that was guarded often
// waits twice as long each time, and a rare site has its guard at the first request of it that is drawn. After 4,096
// draws a site has one guard less to its name, so none is forgotten for ever.
//
// All calls are made under the lock of guards.c.
#ifndef QY_HEAP_GUARDS_CHOICE_H
#define QY_HEAP_GUARDS_CHOICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guard/credit.h"
#include "guard/guard.h"

#define QY_GUARDS_COST_NS INT64_C(15000)
#define QY_GUARDS_START 16     // guards that the time at the start is enough for
#define QY_GUARDS_SAVED 32     // for which time is saved at most
#define QY_GUARDS_ONE_IN 660u  // the share of processor time: 0.15 %
#define QY_GUARDS_SITE_FRAMES 8u

// The site of a stack; 0 frames: that of blocks of n bytes.
uint32_t qy_guards_site(const uintptr_t *pc, unsigned frames, size_t n);

typedef struct qy_guards_turn {
    uint32_t site;
    unsigned count;  // how often it was guarded, as far as is remembered
    qy_guard_side_t side;
} qy_guards_turn_t;
// One more request was drawn, of this site: is it to be guarded? `live` of `most` bytes are in use by others.
bool qy_guards_choose(uint32_t site, size_t live, size_t most, qy_guards_turn_t *ret);
// It was.
void qy_guards_chosen(const qy_guards_turn_t *turn);

extern QY_HIDDEN qy_guard_credit_t qy_guards_credit;

#endif
