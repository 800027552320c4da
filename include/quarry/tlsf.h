// SPDX-License-Identifier: MIT
// tlsf.h: a pool for any sizes and any order of frees, whose every call takes a bounded number of steps.
//
//   static char arena[1 << 20];
//   quarry_pool_t *pool = quarry_tlsf_create(&(quarry_tlsf_options_t){
//       .buffer = arena, .buffer_bytes = sizeof arena, .flags = QUARRY_TLSF_FIXED});
//   sample *s = p_new(pool, sample, 100);  // no loop, no system call: the same work at any fill. p_new: short.h
//   p_delete(pool, &s);
//   quarry_pool_destroy(pool);
//
// The method is two-level segregated fit. Free blocks hang in 32 lists per power of two. Two bitmaps name the first
// list that surely fits. A freed block is joined with its free neighbours at once.
//
//   Owner            of the pool: its creator. Of a block: the thread that allocated it, or the one it was handed to
//   Lifetime         of blocks: until freed or the pool is destroyed. Of added regions: until removed, or the same
//   Initialization   QUARRY_POOL_ZERO clears, otherwise contents are undefined
//   Threads          one at a time. With QUARRY_TLSF_LOCK any, under one lock
//   Alignment        16, and up to 1 GiB on request
//   Cost             alloc and free: no loops. resize: the same, and at most one copy
//   Memory           8 bytes a block. Sizes are rounded up to 24, 40, 56, ...
//   Growth           one request to the parent, never with QUARRY_TLSF_FIXED
//
// A tlsf pool on a caller's buffer is how a buffer becomes the parent of other pools.
#ifndef QUARRY_TLSF_H
#define QUARRY_TLSF_H

#include <quarry/pool.h>

QUARRY_BEGIN

#define QUARRY_TLSF_LOCK 0x1u   ///< one lock around every call: any thread may call
#define QUARRY_TLSF_FIXED 0x2u  ///< only the buffer and added regions are used, never the parent
#define QUARRY_TLSF_KEEP 0x4u   ///< empty regions go back to the parent only with the pool

/// Bytes that a region costs beyond its blocks, for its record and its end, if it begins and ends at multiples of 16.
#define QUARRY_TLSF_REGION_OVERHEAD 64u
/// Bytes that a block costs beyond its size, which is rounded up to 24, 40, 56, ...
#define QUARRY_TLSF_BLOCK_OVERHEAD 8u

/// What quarry_tlsf_create takes. Zero is a good default for every field: a pool that grows from the kernel.
typedef struct quarry_tlsf_options {
    quarry_pool_options_t pool;
    void *buffer;         ///< first region. It stays the caller's and must outlive the pool; NULL: none
    size_t buffer_bytes;  ///< its length, at least 128
    /// least bytes that the pool asks of its parent when it grows, or a quarter of what it holds, if more; 0: 1 MiB
    size_t chunk_bytes;
    unsigned flags;  ///< QUARRY_TLSF_LOCK ...
} quarry_tlsf_options_t;

/// Make a pool. `options` may be NULL. The caller owns it until quarry_pool_destroy. NULL with ENOMEM: no memory for
/// its record of 10 KiB, which comes from the kernel. NULL with EINVAL: a buffer that is too small, a length without a
/// buffer, or an unknown flag.
/// Statistics: allocs, frees, resizes, requested_bytes and used_bytes are always exact. held_bytes counts the buffer
/// and added regions too. The limit does not count them.
QUARRY_API quarry_pool_t *quarry_tlsf_create(const quarry_tlsf_options_t *options) QUARRY_NOEXCEPT;

/// Add `bytes` bytes at `buffer` to the pool. The caller owns them and keeps them until they are removed or the pool is
/// destroyed. Returns 0, or -1 with EINVAL: less than 128 bytes, more than 2^46, or memory that the pool already has.
/// Threads: as alloc. Cost: constant, plus a comparison with each region that the pool has.
QUARRY_API int quarry_tlsf_add_region(quarry_pool_t *pool, void *buffer, size_t bytes) QUARRY_NOEXCEPT;

/// Remove a region of the caller, which may be the first buffer. Returns 0, or -1: with EBUSY while a block lies in it,
/// with EINVAL if it is no such region. Threads and cost: as quarry_tlsf_add_region.
QUARRY_API int quarry_tlsf_remove_region(quarry_pool_t *pool, void *buffer) QUARRY_NOEXCEPT;

/// Call `visit(block, usable bytes, used, arg)` for every block, used or free, region by region in the order of
/// addresses. The walk ends when `visit` returns non-zero, and returns that value, else 0. `visit` must not call into
/// the pool. A damaged pool ends the process with one line. Blocks of a checked pool are shown with their canaries.
/// Threads: as alloc. Cost: a walk over all blocks, under the lock if there is one.
QUARRY_API int quarry_tlsf_walk(
    quarry_pool_t *pool, int (*visit)(void *block, size_t bytes, int used, void *arg), void *arg) QUARRY_NOEXCEPT;

QUARRY_END

#endif
