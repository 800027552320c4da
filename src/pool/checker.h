// SPDX-License-Identifier: MIT
// checker.h: the table of libquarry-check (rt/check_pool.h), if the process has one.
#ifndef QY_POOL_CHECKER_H
#define QY_POOL_CHECKER_H

#include "rt/check_pool.h"

// NULL: the process is not checked. Looked for when the first pool is made; constant afterwards.
const quarry_check_pool_t *qy_checker(void);

#endif
