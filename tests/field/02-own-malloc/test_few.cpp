// SPDX-License-Identifier: MIT
// A program that defines malloc, free, calloc and realloc, and none of the others.
#include "02-own-malloc/own_malloc.h"

#include "02-own-malloc/own_cases.h"

TEST_MAIN()
