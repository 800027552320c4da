// SPDX-License-Identifier: MIT
// large.h: objects above 64 KiB: runs of units (run.h), or mappings of their own (huge.h).
#ifndef QY_HEAP_LARGE_H
#define QY_HEAP_LARGE_H

#include "heap/types.h"

// `h`: the first-class heap (locked by the caller) or any other heap or NULL: charged to none.
// align: a power of two. *ret_fresh: in, whether zeroed memory is wanted; out, whether the n bytes are
// known to be zero. NULL: no memory.
void *qy_large_alloc(qy_heap_t *h, size_t align, size_t n, bool *ret_fresh);

// Guarded blocks (guards.h) are pages of their own, too, and count as huge ones.
typedef struct qy_large_stats {
    size_t runs, run_live, run_slack, huges, huge_live, huge_stuck;  // numbers, bytes
} qy_large_stats_t;
void qy_large_stats(qy_large_stats_t *ret);

#endif
