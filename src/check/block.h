// SPDX-License-Identifier: MIT
// block.h: malloc, free and realloc with their checks; the bodies of api/check_malloc.c and check_new.c.
//
// errno is set as by malloc, and else kept.
#ifndef QY_CHECK_BLOCK_H
#define QY_CHECK_BLOCK_H

#include "check/call.h"

// n bytes at a multiple of align, a power of two; zeroed if the family is CALLOC. NULL and ENOMEM. `asked`: the
// alignment that operator new was given, 0: none.
void *qy_check_alloc(const qy_check_call_t *call, size_t align, size_t n, size_t asked);
void qy_check_free(const qy_check_call_t *call, void *p, const qy_check_claim_t *claim);
// It always moves. NULL: no memory, or p is no block, which is reported.
void *qy_check_realloc(const qy_check_call_t *call, void *p, size_t n);
// As malloc_usable_size: what was asked for; 0 for what is no live block, which is reported.
size_t qy_check_size(const qy_check_call_t *call, const void *p);
// A size or an alignment that cannot be meant.
QY_COLD void qy_check_bad_argument(const qy_check_call_t *call, const char *detail);

#endif
