// SPDX-License-Identifier: MIT
// mismatch.h: does a free fit the block: its function, the size and the alignment that it names?
#ifndef QY_CHECK_MISMATCH_H
#define QY_CHECK_MISMATCH_H

#include "check/call.h"

void qy_check_mismatch(
    const qy_check_call_t *call, const qy_check_place_t *place, uint64_t word, const qy_check_claim_t *claim);

// Operators new and delete, malloc and free are not all ours. A program's own operators may be made of malloc and free,
// and so blocks of one may be given to the other: that is no error then. Written by a constructor.
extern QY_HIDDEN bool qy_check_operators_mixed;
extern QY_HIDDEN bool qy_check_malloc_mixed;  // malloc or free

#endif
