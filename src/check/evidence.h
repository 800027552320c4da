// SPDX-License-Identifier: MIT
// evidence.h: what a canary or a freed block says that was written to, as a report.
#ifndef QY_CHECK_EVIDENCE_H
#define QY_CHECK_EVIDENCE_H

#include "check/check.h"

// The block whose record has this word is LIVE or FREED: are its canary and fill as they were? What is not is reported,
// and mended so that it is reported once.
void qy_check_verify(const qy_check_place_t *place, uint64_t word);
// The same of the canary before the block, which belongs to the block before it.
void qy_check_verify_before(const qy_check_place_t *place);

// All blocks that are live or wait.
void qy_check_blocks_sweep(void);

#endif
