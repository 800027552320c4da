// SPDX-License-Identifier: MIT
// told.h: a checker for tests of persistent pools, which keeps the faults that it is told of.
#ifndef QUARRY_TESTS_PERSIST_TOLD_H
#define QUARRY_TESTS_PERSIST_TOLD_H

#include "rt/check_pool.h"

// How many there were since the process began, and the last one.
extern unsigned told_faults;
extern quarry_check_pool_fault_t told_last;
// With QUARRY_TOLD_ENDS in the environment a fault ends the process with this status.
#define TOLD_ENDS 85

#endif
