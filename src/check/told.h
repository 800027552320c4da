// SPDX-License-Identifier: MIT
// told.h: faults whose doer was reported, so that nothing reports them once more. The canary that such a write changed
// would, when the block is freed. So would the look at what a function of the C library has done, after a page without
// access has stopped that function.
#ifndef QY_CHECK_TOLD_H
#define QY_CHECK_TOLD_H

#include "check/check.h"

// Was this fault reported already? If it was not, it is noted as reported. `inside`: the program was in a function that
// this library stands before, and that will look at the same memory. The caller holds the lock of reports.
bool qy_check_told(const qy_check_fault_t *f, bool inside);

#endif
