// SPDX-License-Identifier: MIT
// call.h: a call of the program's of malloc, free or one of their kin, and what it says of a block.
#ifndef QY_CHECK_CALL_H
#define QY_CHECK_CALL_H

#include "check/check.h"

// A call of the program's, by the name that a report gives it.
typedef struct qy_check_call {
    const char *function;
    qy_check_family_t family;  // of the block that is made; NEW and NEW_ARRAY of a free: delete and delete[]
    qy_stack_regs_t from;      // where the program called it: QY_STACK_CALLER, there
} qy_check_call_t;

// What the caller says of the block, beside its address; 0: nothing.
typedef struct qy_check_claim {
    bool has_size, has_align;
    size_t size, align;
} qy_check_claim_t;

#endif
