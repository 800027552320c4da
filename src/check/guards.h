// SPDX-License-Identifier: MIT
// guards.h: which blocks are guarded: beside a page without access, so that any access beyond them is a fault.
//
// Each guarded block costs some 10 us. So the first blocks of each call site are, with certainty, and later ones more
// and more seldom: of a site's first k blocks about 16 and 16 times the natural logarithm of k / 16. A site that is
// wrong each time is found in its first blocks, and one that is wrong now and then still has its chance. All but the
// certain ones keep to a share of the time. Blocks of a page and more are guarded as far as that lasts.
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
