// SPDX-License-Identifier: MIT
// find.h: a block as others see it, read from its record without a lock.
#ifndef QY_CHECK_FIND_H
#define QY_CHECK_FIND_H

#include "check/check.h"

// The block at the place, which may be one without a record: a guarded block's.
// False: its record is of none, or changes at this moment.
bool qy_check_block_at(const qy_check_place_t *place, qy_check_block_t *ret);

#endif
