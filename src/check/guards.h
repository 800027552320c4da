// SPDX-License-Identifier: MIT
// guards.h: which blocks are guarded: beside a page without access, so that any access beyond them is a fault.
//
// Access ends at a page, so a block has a guard on one side, behind it or before it. By default blocks of a call stack
// take turns. What is wrong on the other side of a block that is alone in its place is for a second run, with the sides
// changed (option guard_side).
//
// Which ones the time allows says budget.h; their pages may be a share of what the program has, and 4 MiB.
#ifndef QY_CHECK_GUARDS_H
#define QY_CHECK_GUARDS_H

#include "check/call.h"
#include "guard/guard.h"

// The options have been read.
void qy_check_guards_begin(void);
extern QY_HIDDEN bool qy_check_guards_on;

// A guarded block for the call whose stack this is, the `ordinal`th. NULL: it is not to be guarded, or cannot be.
void *qy_check_guards_alloc(
    const qy_check_call_t *call, size_t align, size_t n, size_t asked, uint32_t stack, uint64_t ordinal);
// p lies among them.
void qy_check_guards_free(const qy_check_call_t *call, void *p, const qy_check_claim_t *claim);
// The size of the live block at p. False: there is none, which is reported.
bool qy_check_guards_size(const qy_check_call_t *call, const void *p, size_t *ret_size);
// Bytes around blocks that have access and are not theirs: are they as they were? For the end of the process.
void qy_check_guards_sweep(void);

#endif
