// SPDX-License-Identifier: MIT
// innermost.h: the innermost frames of a call stack as addresses, for a user who has little memory.
//
// A capture (stacks.h) gives a stack a number for ever, and is quick because each thread remembers its last one: a tree
// of stacks, a table of 512 KiB, and 90 KiB for each thread. Here is what a few stacks in a second need: nothing for a
// thread but the bounds of its stack, and 60 KiB in all, of which some pages are used.
//
// As a capture it takes no lock, allocates nothing, and reads memory only where it cannot fault.
#ifndef QY_STACKS_INNERMOST_H
#define QY_STACKS_INNERMOST_H

#include "stacks/stack.h"
#include "stacks/unwind.h"

// All zero is a valid state. The user lets one thread in at a time, by a lock that nobody waits for without end: a walk
// may wait for the dynamic linker, which may wait for a malloc.
typedef struct qy_innermost {
    qy_walk_t walk;
    qy_rules_few_t few;
    uint8_t window[QY_WINDOW] QY_ALIGNED(16);
    bool started;
} qy_innermost_t;

// False: no memory, or the C library cannot be asked for code at any time. Then no walk finds a frame.
bool qy_innermost_start(qy_innermost_t *s);
// Files have gone, or may have: what was learnt from their tables is forgotten.
void qy_innermost_forget(qy_innermost_t *s);

// Up to `most` frames from `from` on, without those of the shared library this code is in. How many. Each is an address
// in the call that the frame waits for, so that it is of the call's line, or that of the instruction if from->exact.
// `bounds`: the calling thread's own, or all zero.
unsigned qy_innermost_frames(
    qy_innermost_t *s, qy_bounds_t *bounds, const qy_stack_regs_t *from, uintptr_t *ret_pc, unsigned most);

#endif
