// SPDX-License-Identifier: MIT
// stack.h: where a call stack begins, how deep it may be, and how a node of it is told.
#ifndef QY_STACKS_STACK_H
#define QY_STACKS_STACK_H

#include <stdbool.h>
#include <stdint.h>

#define QY_STACK_DEPTH 256  // deeper stacks: the innermost frames, hanging from the root

// Write a node to the trace. False: it could not be written; it gets no id then, nor has the capture one.
// Called by the capturing thread, within the capture: a capture from here, or from a signal handler that
// interrupts, is given 0.
typedef bool (*qy_stack_emit_t)(void *arg, uint32_t id, uint32_t parent, uintptr_t pc, bool is_return);

// Where a stack begins: the registers of the function whose frame is the innermost one wanted.
typedef struct qy_stack_regs {
    uintptr_t pc, sp, fp;
    bool exact;  // pc is the instruction that runs (a signal's context), not a return address
} qy_stack_regs_t;

// The registers of the caller of the function in which this stands. Put into the function that the program
// called (malloc itself), no frame of ours is seen at all; that is the quickest way, and the only one
// that misses nothing with QY_STACKS_FP. (The function gets a frame pointer by it.)
#define QY_STACK_CALLER()                                                 \
    ((qy_stack_regs_t){.pc = (uintptr_t)__builtin_return_address(0),      \
        .sp = (uintptr_t)__builtin_frame_address(0) + 2 * sizeof(void *), \
        .fp = *(const uintptr_t *)__builtin_frame_address(0)})

#endif
