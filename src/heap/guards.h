// SPDX-License-Identifier: MIT
// guards.h: sampled blocks that lie beside a page without access, in production: option guard.
//
// A request that is drawn (draw.h) is given a slot of guard/guard.h, if guards_choice.h finds it worth one. An access
// beyond its pages, or after its free, is a fault, which guards_report.h tells with the stacks of the allocation and
// the free. Then the program ends as it would have, or goes on (option guard_go_on). Requests that are not drawn know
// nothing of it.
//
// Nothing is mapped, and no signal has a handler, before the first request is drawn. In all there are less than 512
// KiB:
//
//   pages of live blocks      256 KiB at most
//   two stacks of each slot    67 KiB
//   rules of unwinding         32 KiB, and some of the program's odd ones
//   slots, owners of pages     21 KiB
//   call sites, a walk, text   40 KiB, of which a walk uses a part
//
// and for each thread 1.3 KiB (struct qy_draw). A kernel that refuses makes fewer guarded blocks, or none.
//
// The sampler's control word is also written by readers from outside. While none reads, drawing is on for the guards
// alone, and no event is told.
#ifndef QY_HEAP_GUARDS_H
#define QY_HEAP_GUARDS_H

#include "guard/guard.h"
#include "heap/types.h"

// The options have been read.
void qy_guards_begin(void);
// There are none in this process: it has a checker. Before that, or later.
void qy_guards_deny(void);
// A guarded block for a request that is drawn. NULL: it is not worth one, or none is to be had. *ret_fresh: it is zero.
// No locks of the heap are held.
void *qy_guards_alloc(size_t align, size_t n, bool *ret_fresh);

// p, which lies among them (qy_lookup_is_guarded), is freed. What is no live block's begin is told, and ends the
// process unless it is to go on.
void qy_guards_free(void *p);
// p, which does and is no live block's begin, is to be resized: the same.
void qy_guards_misused(const void *p);

// Live ones, and the bytes of their pages.
void qy_guards_live(size_t *ret_blocks, size_t *ret_bytes);

qy_lock_t *qy_guards_lock(void);  // for a fork

#endif
