// SPDX-License-Identifier: MIT
// trace.h: what pools tell the recorder (rt/record_pool.h), if the process has one.
//
// A recorded pool has QY_MODE_RECORDED, and QY_MODE_COUNTED: so its fast paths are closed like those of a logged pool,
// and kinds need no question of their own. They call these functions where they count; of a pool that is not recorded
// nothing is told.
//
// What is told is what the user sees: of a checked pool the block between its redzones, told by observe.c. When: see
// record_pool.h. Under any locks of the pool; below them are only the recorder's.
#ifndef QY_POOL_TRACE_H
#define QY_POOL_TRACE_H

#include "pool/pool.h"

// The pool is told of, and its mode set, if the process is recorded. Its parent is known.
void qy_pool_trace_open(quarry_pool_t *pool);
// It is gone, with all its blocks: before their memory goes back. Nothing is told afterwards, so kinds that have chunks
// to put back call it first, and qy_pool_drop for the others.
void qy_pool_trace_close(quarry_pool_t *pool);
// Around fork: of each pool, and of all.
void qy_pool_trace_fork(quarry_pool_t *pool, int phase);
void qy_pool_trace_fork_all(int phase);

// p is a block now; returns p. NULL is no block.
QY_COLD void *qy_pool_trace_alloc(quarry_pool_t *pool, size_t size, size_t alignment, void *p);
QY_COLD void qy_pool_trace_free(quarry_pool_t *pool, const void *p);
// `old` is at p now, or p == old; returns p. NULL: it was refused.
QY_COLD void *qy_pool_trace_resized(quarry_pool_t *pool, const void *old, size_t size, void *p);
QY_COLD void qy_pool_trace_pushed(quarry_pool_t *pool);
QY_COLD void qy_pool_trace_popped(quarry_pool_t *pool);
QY_COLD void qy_pool_trace_sealed(quarry_pool_t *pool, uint64_t frame);
QY_COLD void qy_pool_trace_released(quarry_pool_t *pool, uint64_t frame);
// What it holds and uses has changed by a chunk. Calls the kind's `stats`, as the log does.
QY_COLD void qy_pool_trace_held(quarry_pool_t *pool);

// For a resize in a shared pool that gives the old place away before anybody knows the new one: between these two,
// other threads wait to tell of blocks that are at a new place, allocated or moved there, so that none is told at the
// old place too early. Only for kinds that hold no lock when they tell of one. moved() tells the resize.
QY_COLD void qy_pool_trace_moving(quarry_pool_t *pool);
QY_COLD void *qy_pool_trace_moved(quarry_pool_t *pool, const void *old, size_t size, void *p);

#endif
