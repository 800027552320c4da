// SPDX-License-Identifier: MIT
// observe.h: what a checked pool does instead of its fast path.
//
// Under observation every block has a node out of line, so the memory of the pool itself stays as it is, and
// a wild write cannot damage what finds it. A block lies between two redzones:
//
//   raw ->  [ redzone ][ block ............ ][ redzone ]
//
// with canaries (QY_MODE_GUARD), poisoned for AddressSanitizer (QY_MODE_ASAN), made inaccessible and the block
// known to memcheck (QY_MODE_VALGRIND). With QY_MODE_PASS raw is a malloc of exactly the block's size, so
// that a checker of malloc sees each object. With QY_MODE_FENCE raw is a mapping that ends before a page without access
// (fence.h). Otherwise raw comes from the kind's raw_alloc.
//
// Freed blocks of kinds with raw_free stay in quarantine for a while, filled and unreadable where that is possible;
// what was written to them meanwhile is found when they leave it. Those of kinds without raw_free (stack and ring) do
// so in mode GUARD until their memory is given out again.
//
// Groups: blocks that end together. A stack uses the depth of the frame, a ring the number of the frame; others 0.
// Threads: every function takes the observer's lock; kinds need not hold theirs.
#ifndef QY_POOL_OBSERVE_H
#define QY_POOL_OBSERVE_H

#include "pool/node.h"
#include "pool/pool.h"
#include "stacks/stack.h"

// Decide what is observed (options of the pool, QUARRY_CONF=pools:..., the checker that runs) and set
// pool->mode. False: no memory.
bool qy_observe_open(quarry_pool_t *pool);
// The pool ends: all blocks end. For kinds' destroy, before chunks are put back. May be called again.
void qy_observe_close(quarry_pool_t *pool);
// And its observer goes. The pool is in no list, so no fork has that observer's lock.
void qy_observe_drop(quarry_pool_t *pool);
void qy_observe_fork(quarry_pool_t *pool, int phase);

// `caller`: the registers of the program's function that called the operation, for the block's stacks (origin.h).
void *qy_observe_alloc(quarry_pool_t *pool, const qy_stack_regs_t *caller, uint64_t group, size_t size,
    size_t alignment, unsigned flags);
// Always moves, so that pointers to the old place are found. `group`: the innermost; in kinds with
// QUARRY_POOL_FRAMES a block of another group is misuse.
void *qy_observe_resize(quarry_pool_t *pool, const qy_stack_regs_t *caller, uint64_t group, void *ptr, size_t size,
    size_t alignment, unsigned flags);
void qy_observe_free(quarry_pool_t *pool, const qy_stack_regs_t *caller, void *ptr);
// All blocks whose group is within [first, last] end (frame pop, release). `caller` may be NULL.
void qy_observe_end(quarry_pool_t *pool, const qy_stack_regs_t *caller, uint64_t first, uint64_t last);

// Blocks leave quarantine, chained by `older`: for good. What was written to them meanwhile is found now.
void qy_observe_leave_all(quarry_pool_t *pool, qy_block_node_t *chain);
QY_INLINE void qy_observe_leave(quarry_pool_t *pool, qy_block_node_t *chain) {
    if (QY_UNLIKELY(chain != NULL)) qy_observe_leave_all(pool, chain);
}

// For kinds without raw_free: what ended blocks lie in is given back, or given out again. Those with memory in the
// range leave quarantine; what was written to them meanwhile is found now. (reused.h: the newest of them.)
void qy_observe_reused_all(quarry_pool_t *pool, const void *base, size_t bytes);

size_t qy_observe_usable(quarry_pool_t *pool, const void *ptr);
uint64_t qy_observe_live(quarry_pool_t *pool);  // blocks
const char *qy_observe_check(quarry_pool_t *pool);
void qy_observe_stats(quarry_pool_t *pool, quarry_pool_stats_t *stats);

// Memory of a chunk that holds no block: nobody may touch it. And before it is put back: all may. For kinds: after
// qy_chunk_get and before qy_chunk_put, if pool->mode & QY_MODE_OBSERVED. The kind's own headers in a chunk
// stay usable if it asks for the rest only.
void qy_observe_hide(quarry_pool_t *pool, void *base, size_t bytes);
void qy_observe_show(quarry_pool_t *pool, void *base, size_t bytes);

#endif
