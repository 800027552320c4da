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
// Two-level segregated fit: free blocks hang in 32 lists per power of two; two bitmaps name the first list that
// surely fits; a freed block is joined with its free neighbours at once.
//
// Owner            the creator; a block belongs to who allocated it, until it frees it
// Lifetime         of blocks: until freed or the pool is destroyed; of added regions: until removed, or the pool is
//                  gone
// Initialization   as asked for: QUARRY_POOL_ZERO clears, otherwise contents are undefined
// Threads          one at a time; with QUARRY_TLSF_LOCK any, under one lock
// Alignment        16; up to 1 GiB on request
// Cost             alloc, free: no loops; resize: that and at most one copy. 8 bytes a block, sizes in steps of 16
//                  bytes from 24 + 16 n. Growing (unless QUARRY_TLSF_FIXED) adds one request to the parent.
//
// A tlsf pool on a caller's buffer is how a buffer becomes the parent of other pools.
#ifndef QUARRY_TLSF_H
#define QUARRY_TLSF_H

#include <quarry/pool.h>

QUARRY_BEGIN

#define QUARRY_TLSF_LOCK 0x1u   ///< one lock around every call: any thread may do anything
#define QUARRY_TLSF_FIXED 0x2u  ///< never ask the parent: only the buffer and added regions are used
#define QUARRY_TLSF_KEEP 0x4u   ///< never give an empty region back to the parent before the pool is destroyed

/// What a region costs beyond its blocks (its record and its end), if it begins and ends at multiples of 16.
#define QUARRY_TLSF_REGION_OVERHEAD 64u
/// What a block costs beyond its bytes, which are rounded up to 24, 40, 56, ...
#define QUARRY_TLSF_BLOCK_OVERHEAD 8u

/// What quarry_tlsf_create takes. Zero is a good default for every field: a pool that grows from the kernel.
typedef struct quarry_tlsf_options {
    quarry_pool_options_t pool;
    void *buffer;         ///< first region, of the caller, who keeps it until the pool is gone; NULL: none
    size_t buffer_bytes;  ///< its length, at least 128
    /// least bytes to ask of the parent when growing; 0: 1 MiB. A quarter of what is held, if more
    size_t chunk_bytes;
    unsigned flags;  ///< QUARRY_TLSF_LOCK ...
} quarry_tlsf_options_t;

/// Make a pool. NULL with ENOMEM (no memory for its record of 10 KiB, which comes from the kernel), or with EINVAL (a
/// buffer that is too small, NULL with a length, or an unknown flag). `options` may be NULL. Destroy it with
/// quarry_pool_destroy. Statistics: allocs, frees, resizes, requested_bytes and used_bytes are always exact; held_bytes
/// counts the buffer and added regions too. Memory of callers is not counted against the limit.
QUARRY_API quarry_pool_t *quarry_tlsf_create(const quarry_tlsf_options_t *options) QUARRY_NOEXCEPT;

/// Let the pool use `bytes` bytes at `buffer` too. The caller owns them and keeps them until they are removed or the
/// pool is gone. 0; or -1 with EINVAL: less than 128 bytes, more than 2^46, or memory the pool already has.
/// Threads: as alloc. Cost: constant, plus a comparison with each region there is.
QUARRY_API int quarry_tlsf_add_region(quarry_pool_t *pool, void *buffer, size_t bytes) QUARRY_NOEXCEPT;

/// Take a region of the caller (also the first buffer) out again. 0; or -1 with EBUSY while a block lies in it, or
/// with EINVAL if it is no such region. Threads and cost: as quarry_tlsf_add_region.
QUARRY_API int quarry_tlsf_remove_region(quarry_pool_t *pool, void *buffer) QUARRY_NOEXCEPT;

/// Call `visit(block, usable bytes, used, arg)` for every block, used or free, region by region in the order of
/// addresses, until it returns non-zero, which is then returned; else 0. `visit` must not call into the pool. A damaged
/// pool ends the process with one line. Blocks of a checked pool are shown with their surroundings.
QUARRY_API int quarry_tlsf_walk(
    quarry_pool_t *pool, int (*visit)(void *block, size_t bytes, int used, void *arg), void *arg) QUARRY_NOEXCEPT;

QUARRY_END

#endif
