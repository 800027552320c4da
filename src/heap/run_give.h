// SPDX-License-Identifier: MIT
// run_give.h: the pages of a run that ends, or of the end of one that shrinks: kept for the next object, or given back
// at once.
//
// Free pages wait until the purge finds them old (purge.h), some time later. What lived for long does not wait. To
// have its pages anew costs little beside the time they were in use. While they waited, the program might reach the
// most memory it ever has, with pages in it that serve nobody. That is wrong where many runs live for just so long: so
// there is only so much of it per second. A page that nobody has again costs next to nothing, least of all one that
// was never touched, which cannot be told. So most of it is paid for when the pages are taken again, if ever.
//
// Nor does what is twice as large as any that went for this reason before, if it is little beside all runs. A program
// that needs one large run for a moment, at its start say, may never need another. If it does, it has had that one
// anew.
#ifndef QY_HEAP_RUN_GIVE_H
#define QY_HEAP_RUN_GIVE_H

#include "heap/types.h"

// When a run begins or grows: what its descriptor remembers (qy_slab_t.made).
uint64_t qy_run_clock(void);

// n units from the first-th of this chunk on, of run s, come back to the page layer. `touched`: whether they may be.
// `mapped`: the bytes of all runs. Waits for no lock but the page layer's.
void qy_run_give(const qy_slab_t *s, qy_chunk_t *chunk, unsigned first, unsigned n, bool touched, size_t mapped);

// Bytes of the largest that was the first of its size.
extern _Atomic size_t qy_run_largest_first;

#endif
