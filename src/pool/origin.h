// SPDX-License-Identifier: MIT
// origin.h: where the program called a pool, as one number: a stack of stacks/stacks.h.
//
// An operation gives the registers of its caller: &QY_STACK_CALLER() (stacks/stack.h) in the function that the program
// called. So nothing of ours is walked through; what is left of a shared library's own frames is skipped.
#ifndef QY_POOL_ORIGIN_H
#define QY_POOL_ORIGIN_H

#include <stdint.h>

#include "stacks/stacks.h"

// Stacks are wanted from now on. For each pool that is checked; costs a few system calls the first time.
void qy_origin_start(void);
// The stack that begins at `caller`. 0: not known. Any thread, with the locks of kinds held.
uint32_t qy_origin(const qy_stack_regs_t *caller);
// One line on stderr: "quarry: note: WHAT at" and return addresses. Nothing if the stack is not known.
void qy_origin_print(const char *what, uint32_t origin);

#endif
