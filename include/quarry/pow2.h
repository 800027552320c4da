// SPDX-License-Identifier: MIT
// pow2.h: a pool of power-of-two blocks, for any threads: buddies that split and join, several locks, large blocks
// mapped.
//
//   quarry_pool_t *pool = quarry_pow2_create(NULL);
//   page *p = p_new(pool, page, 1);            // sizeof(page) == 4096: a block of 4096, at a multiple of 4096. p_new:
//   short.h
//   quarry_pow2_print_block(pool, p, 2);       // what lies there, on stderr
//   p_delete(pool, &p);                        // joined with its free neighbours at once
//   quarry_pool_destroy(pool);
//
// Sizes are rounded up to 32, 64, 128, ...; what is known of a block lies elsewhere, one byte for 32, so that a request
// of exactly a power of two wastes nothing, and so that every pointer that is not a block, or not any more, is seen.
//
// Owner            the creator; a block belongs to who allocated it, until anybody frees it
// Lifetime         of blocks: until freed or the pool is destroyed
// Initialization   as asked for; QUARRY_POOL_ZERO costs nothing where memory is fresh from the kernel
// Threads          any may do anything; the pool is divided into partitions with a lock each
// Alignment        a block of 2^k bytes lies at a multiple of 2^k (below map_bytes); mapped ones at a page; up to 1 GiB
//                  on request
// Cost             one lock; at most log2(region / 32) steps, never a walk over blocks. Rounding wastes a quarter on
//                  average of evenly spread sizes; the record of blocks 1/32 of the regions, as far as it is touched.
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
    /// what is asked of the parent at a time, a power of two from 4 KiB to 1 GiB; 0: 32 MiB. Less if refused
    size_t region_bytes;
    /// requests that need a block of at least this, a power of two up to region_bytes, get a mapping
    size_t map_bytes;
    ///< of their own of just their size (from a parent pool: a block of its); 0: 1 MiB, or
    ///< region_bytes
    /// free memory that is kept before some is given back: in empty regions, in pages of free blocks,
    size_t give_back_bytes;
    ///< and in freed mappings, so much of each; 0: 32 MiB. 1: mappings go back when they are
    ///< freed
} quarry_pow2_options_t;

/// Make a pool. NULL with ENOMEM, or with EINVAL for options out of range. `options` may be NULL. Destroy it with
/// quarry_pool_destroy. Statistics: all are always exact. Records of blocks come from the kernel and are not in
/// held_bytes.
QUARRY_API quarry_pool_t *quarry_pow2_create(const quarry_pow2_options_t *options) QUARRY_NOEXCEPT;

/// A snapshot of all partitions together. Sizes in bytes; counters since the pool was made.
typedef struct quarry_pow2_stats {
    unsigned partitions;
    size_t regions;             ///< areas that blocks are split from
    size_t region_bytes;        ///< their sum
    size_t mapped_blocks;       ///< live blocks that are mappings of their own
    size_t mapped_bytes;        ///< their sum
    size_t free_bytes;          ///< free in regions
    size_t kept_bytes;          ///< of mappings that were freed, and are kept for the next ones
    size_t dirty_bytes;         ///< of these, in blocks of 64 KiB and more, and likely resident
    uint64_t requested_bytes;   ///< asked for, of blocks in regions
    uint64_t rounded_bytes;     ///< given for them: 1 - requested / rounded is the internal fragmentation
    uint64_t splits;            ///< blocks halved
    uint64_t joins;             ///< buddies joined
    uint64_t steals;            ///< allocations served by another partition than the thread's
    uint64_t purged_bytes;      ///< given back to the kernel inside regions
    uint64_t resized_in_place;  ///< resizes without a copy
    /// resizes into free neighbours, with the content moved down where the left one was needed
    uint64_t resized_by_join;
} quarry_pow2_stats_t;

/// Fill *ret_stats. Cost: a walk over the partitions, not over blocks.
QUARRY_API void quarry_pow2_stats(quarry_pool_t *pool, quarry_pow2_stats_t *ret_stats) QUARRY_NOEXCEPT;

/// What happened to the lock of one partition.
typedef struct quarry_pow2_partition_stats {
    uint64_t takes;      ///< times the lock was taken
    uint64_t contended;  ///< times it was found taken; allocations then try the next partition first
    uint64_t allocs, frees;
    size_t regions, free_bytes;
} quarry_pow2_partition_stats_t;

/// Fill *ret_stats for partition `index`. 0, or -1 with EINVAL when there is no such partition.
QUARRY_API int quarry_pow2_partition_stats(
    quarry_pool_t *pool, unsigned index, quarry_pow2_partition_stats_t *ret_stats) QUARRY_NOEXCEPT;

#define QUARRY_POW2_ORDERS 32u

/// How free memory is cut up: ret_blocks[k] is the number of free blocks of 2^k bytes, of one instant. Returns their
/// sum. Cost: a walk over the maps of all regions, with all locks held.
QUARRY_API size_t quarry_pow2_fragments(
    quarry_pool_t *pool, size_t ret_blocks[QUARRY_POW2_ORDERS]) QUARRY_NOEXCEPT;

/// Give all free memory back that can be: empty regions to the parent, pages of free blocks to the kernel. Returns the
/// bytes.
QUARRY_API size_t quarry_pow2_trim(quarry_pool_t *pool) QUARRY_NOEXCEPT;

/// Write one line about the block that `ptr` is or lies in to file descriptor `fd`. 0; -1 if it is none, or the write
/// failed. Allocates nothing, and writes while no lock is held.
QUARRY_API int quarry_pow2_print_block(quarry_pool_t *pool, const void *ptr, int fd) QUARRY_NOEXCEPT;

/// Write sizes and the free blocks, counted by order, the first few with their addresses, to `fd`. The counts are of
/// one instant: all locks are held while they are gathered, none while they are written. Allocates nothing. 0, or -1
/// when the write failed.
QUARRY_API int quarry_pow2_print_free(quarry_pool_t *pool, int fd) QUARRY_NOEXCEPT;

/// The pool behind malloc in libquarry-pow2.so, which alone has this function. For the functions above; not to be
/// destroyed.
QUARRY_API quarry_pool_t *quarry_pow2_process_pool(void) QUARRY_NOEXCEPT;

QUARRY_END

#endif
