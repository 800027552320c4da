// SPDX-License-Identifier: MIT
// unwind_bounds.h: which part of the stack may be loaded without asking.
//
// The own stack of a thread, from the page of its lowest known sp up to its top, stays mapped as long as the thread
// lives. Two kinds of it are known: the main thread's, whose top the kernel tells and which is never
// unmapped; and that of threads of the C library, whose thread pointer lies in the same block above the
// stack. That sp is on such a stack is proved, not assumed: every page between sp and the top can be
// read. Below stacks lies a guard that cannot, so nothing that is reached through readable pages alone
// is another stack. (A program that gives its threads stacks of its own, without guards, and puts coroutines' stacks
// directly below them, could be mistaken. It would have to unmap part of one and corrupt a frame too.)
//
// Everything else (alternative signal stacks, coroutines, threads by bare clone) is foreign: it may be unmapped
// at any time after the switch away from it, so it is read through the kernel in each capture anew.
#ifndef QY_STACKS_UNWIND_BOUNDS_H
#define QY_STACKS_UNWIND_BOUNDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

#define QY_BOUNDS_FOREIGN 8

typedef struct qy_bounds {
    uintptr_t lo, hi;  // the own stack as far as known; multiples of 8. Both 0: not known yet
    struct {
        uintptr_t lo, hi;
    } foreign[QY_BOUNDS_FOREIGN];  // sp between these is not on the own stack: found out before
    unsigned next;
} qy_bounds_t;

QY_INLINE bool qy_bounds_has(const qy_bounds_t *b, uintptr_t sp) { return sp - b->lo < b->hi - b->lo; }

// Is sp on the calling thread's own stack? Then lo and hi are made to enclose it. Costs 0.1 us per page
// of stack that is new, at most once in the thread's life.
bool qy_bounds_cover(qy_bounds_t *b, uintptr_t sp);

#endif
