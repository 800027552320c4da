// SPDX-License-Identifier: MIT
// run_give.h: the pages of a run that ends, or of the end of one that shrinks: kept for the next object, or given back at once.
//
// Free pages wait until the purge finds them old (purge.h), some time later. Two kinds do not wait:
// - what is more than is live. Nobody will need as much.
// - what lived for long. That its pages are had anew from the kernel costs little beside the time they were in use; and while they
//   waited, the program might reach the most memory it ever has, with pages in it that serve nobody. It may be wrong, where many runs
//   live for just so long: so there is only so much of it per second.
#ifndef QY_HEAP_RUN_GIVE_H
#define QY_HEAP_RUN_GIVE_H

#include "heap/types.h"

// When a run begins: what its descriptor remembers (qy_slab_t.made).
uint64_t qy_run_clock(void);

// Of run s, n units from `base` on are free and nobody's yet. `mapped`: the bytes of all runs. True: they are as they were. False: they
// are clean, their pages have gone.
bool qy_run_pages_stay(const qy_slab_t *s, char *base, unsigned n, size_t mapped);

// Until when what went is paid for. A race may let a run pass that was not.
extern _Atomic uint64_t qy_run_spent_until;

#endif
