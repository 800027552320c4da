// SPDX-License-Identifier: MIT
// run.h: objects that are a run of units each: up to 1 MiB always, up to 32 MiB if they need not be zero or
// if their like was touched (clear.h), and up to 128 MiB if the program has freed one of those before (large.c).
#ifndef QY_HEAP_RUN_H
#define QY_HEAP_RUN_H

#include "heap/types.h"

// As qy_large_alloc (large.h).
void *qy_run_alloc(qy_heap_t *h, size_t align, size_t n, bool *ret_fresh);
void qy_run_free(qy_chunk_t *chunk, qy_slab_t *s);
void qy_run_release(qy_heap_t *h, qy_chunk_t *chunk, qy_slab_t *s);  // of a locked first-class heap
// Its pages have moved elsewhere: the units are free and clean. Of no first-class heap.
void qy_run_leave(qy_chunk_t *chunk, qy_slab_t *s);
// On the same units, and more or fewer. Returns the object, which lies at the first unit's begin if it is larger than
// QY_RUN_MAX now, or NULL: nothing changed.
void *qy_run_resize(qy_chunk_t *chunk, qy_slab_t *s, size_t n);
// Bytes of the units of all.
size_t qy_run_mapped(void);
size_t qy_run_usable(const qy_slab_t *s);
// How many there are, bytes in them, and bytes of their units beyond.
void qy_run_stats(size_t *ret_count, size_t *ret_live, size_t *ret_slack);

// Bytes of the largest whose pages went because it was the first of its size.
extern _Atomic size_t qy_run_largest_first;

#endif
