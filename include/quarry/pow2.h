// SPDX-License-Identifier: MIT
// pow2.h: a pool of power-of-two blocks, for any threads: buddies that split and join, several locks, large blocks
// mapped.
//
//   quarry_pool_t *pool = quarry_pow2_create(NULL);
//   page *p = p_new(pool, page, 1);         // sizeof(page) == 4096: a block of 4096, at a multiple of 4096
//   quarry_pow2_print_block(pool, p, 2);    // what lies there, on stderr
//   p_delete(pool, &p);                     // joined with its free neighbours at once. The names p_ are of short.h
//   quarry_pool_destroy(pool);
//
// Sizes are rounded up to 32, 64, 128, ... The pool keeps its records apart from the blocks, one byte for 32. So a
// request of exactly a power of two wastes nothing. A pointer that is not the start of a live block is always seen.
//
//   Owner            of the pool: its creator. Of a block: the thread that allocated it, until any thread frees it
//   Lifetime         of blocks: until freed or the pool is destroyed
//   Initialization   QUARRY_POOL_ZERO clears, which costs nothing for memory that is fresh from the kernel
//   Threads          any thread may call any function. The pool is divided into partitions with a lock each
//   Alignment        a block of 2^k bytes below map_bytes lies at a multiple of 2^k, a mapped one at a page. Up to
//                    1 GiB on request
//   Cost             one lock and at most log2(region / 32) steps, never a walk over blocks
//   Memory           rounding wastes a quarter on average of evenly spread sizes. Records take 1/32 of what is touched
#ifndef QUARRY_POW2_H
#define QUARRY_POW2_H

#include <quarry/pool.h>

QUARRY_BEGIN

#define QUARRY_POW2_NO_MERGE 0x1u  ///< a block that must grow moves, even if its neighbours are free
/// The locks are divided between sizes of blocks, not between threads. Threads meet at a lock when they ask for the
/// same power of two. Each size has regions of its own, so the pool takes more address space.
#define QUARRY_POW2_SIZE_LOCKS 0x2u

#define QUARRY_POW2_MIN_BLOCK 32u  ///< the smallest block
#define QUARRY_POW2_PARTITIONS_MAX 64u

/// What quarry_pow2_create takes. Zero is a good default for every field.
typedef struct quarry_pow2_options {
    quarry_pool_options_t pool;
    unsigned partitions;  ///< 1 to 64, each with a lock; 0: one for each processor, with SIZE_LOCKS for each size
    unsigned flags;       ///< QUARRY_POW2_NO_MERGE, QUARRY_POW2_SIZE_LOCKS
    /// bytes of a request to the parent, a power of two from 4 KiB to 1 GiB, less if the parent refuses; 0: 32 MiB
    size_t region_bytes;
    /// a request that needs a block of at least this size gets a mapping of its own, of just its size. With a parent
    /// pool the mapping is a block of the parent. A power of two up to region_bytes; 0: 1 MiB, or region_bytes if less
    size_t map_bytes;
    /// free memory that is kept for reuse in empty regions, in pages of free blocks and in freed mappings, each of them
    /// up to this size; 0: 32 MiB. 1: a mapping goes back when it is freed
    size_t give_back_bytes;
} quarry_pow2_options_t;

/// Make a pool. `options` may be NULL. The caller owns it until quarry_pool_destroy. NULL with ENOMEM, or with EINVAL
/// for options out of range.
/// Statistics: all are always exact. Records of blocks come from the kernel and are not in held_bytes.
QUARRY_API quarry_pool_t *quarry_pow2_create(const quarry_pow2_options_t *options) QUARRY_NOEXCEPT;

/// A snapshot of all partitions together. Sizes are in bytes, and counters begin when the pool is made.
typedef struct quarry_pow2_stats {
    unsigned partitions;        ///< as set at creation
    size_t regions;             ///< areas that blocks are split from
    size_t region_bytes;        ///< bytes of all regions
    size_t mapped_blocks;       ///< live blocks that are mappings of their own
    size_t mapped_bytes;        ///< bytes of all mapped blocks
    size_t free_bytes;          ///< free bytes in regions
    size_t kept_bytes;          ///< bytes of freed mappings that are kept for the next ones
    size_t dirty_bytes;         ///< free bytes in blocks of 64 KiB and more that are likely resident
    uint64_t requested_bytes;   ///< bytes that were requested, of blocks in regions
    uint64_t rounded_bytes;     ///< bytes given for them: 1 - requested / rounded is the internal fragmentation
    uint64_t splits;            ///< blocks halved
    uint64_t joins;             ///< buddies joined
    uint64_t steals;            ///< allocations served by another partition than the thread's
    uint64_t purged_bytes;      ///< bytes given back to the kernel inside regions
    uint64_t resized_in_place;  ///< resizes without a copy
    /// resizes into free neighbours; the content moves down if the left neighbour was needed
    uint64_t resized_by_join;
} quarry_pow2_stats_t;

/// Fill *ret_stats. Threads: any. Cost: a walk over the partitions, not over blocks.
QUARRY_API void quarry_pow2_stats(quarry_pool_t *pool, quarry_pow2_stats_t *ret_stats) QUARRY_NOEXCEPT;

/// What happened to the lock of one partition.
typedef struct quarry_pow2_partition_stats {
    uint64_t takes;      ///< times the lock was taken
    uint64_t contended;  ///< times it was found taken; allocations then try the next partition first
    uint64_t allocs, frees;
    size_t regions, free_bytes;  ///< as in quarry_pow2_stats_t, of this partition
} quarry_pow2_partition_stats_t;

/// Fill *ret_stats for partition `index`. Returns 0, or -1 with EINVAL when there is no such partition.
QUARRY_API int quarry_pow2_partition_stats(
    quarry_pool_t *pool, unsigned index, quarry_pow2_partition_stats_t *ret_stats) QUARRY_NOEXCEPT;

#define QUARRY_POW2_ORDERS 32u

/// Count free blocks by size, all at one instant: ret_blocks[k] is the number of free blocks of 2^k bytes. Returns the
/// sum of the counts. Cost: a walk over the maps of all regions, with all locks held.
QUARRY_API size_t quarry_pow2_fragments(
    quarry_pool_t *pool, size_t ret_blocks[QUARRY_POW2_ORDERS]) QUARRY_NOEXCEPT;

/// Give free memory back: empty regions and kept mappings to the parent, pages of free blocks to the kernel. Returns
/// the bytes that went back. Threads: any. Cost: a walk over the free memory, with locks and system calls.
QUARRY_API size_t quarry_pow2_trim(quarry_pool_t *pool) QUARRY_NOEXCEPT;

/// Write one line to file descriptor `fd` about the block that `ptr` is or lies in. Returns 0, or -1 if there is no
/// such block or the write failed. The call allocates nothing, and writes while it holds no lock.
QUARRY_API int quarry_pow2_print_block(quarry_pool_t *pool, const void *ptr, int fd) QUARRY_NOEXCEPT;

/// Write to file descriptor `fd` the pool's sizes, and its free blocks by order: their number, and the addresses of the
/// first few. Returns 0, or -1 when the write failed. The counts are of one instant: the call holds all locks while it
/// counts, and none while it writes. It allocates nothing.
QUARRY_API int quarry_pow2_print_free(quarry_pool_t *pool, int fd) QUARRY_NOEXCEPT;

/// The pool behind malloc in libquarry-pow2.so, for the functions above. Only that library has this function. The pool
/// belongs to the library and must not be destroyed.
QUARRY_API quarry_pool_t *quarry_pow2_process_pool(void) QUARRY_NOEXCEPT;

QUARRY_END

#endif
