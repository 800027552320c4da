// SPDX-License-Identifier: MIT
// stats.h: where the heap's memory is, in numbers that add up.
//
//   mapped_bytes = live + cached + slab_free + slab_fresh + run_slack + pages_dirty + pages_clean
//   (and metadata_bytes beside it, in mappings of its own)
#ifndef QUARRY_STATS_H
#define QUARRY_STATS_H

#include <quarry/attr.h>

QUARRY_BEGIN

/// A snapshot. Bytes unless the name says otherwise. Counters of slow events run from the start.
typedef struct quarry_stats {
    // Where the memory is.
    size_t mapped_bytes;       ///< address space open for blocks (RW), whether touched or not
    size_t live_bytes;         ///< given out, by usable size; blocks in other threads' caches count as live
    size_t live_blocks;        ///< number of them
    size_t cached_bytes;       ///< free, in the calling thread's cache, and blocks of 8 bytes in any thread's
    size_t slab_free_bytes;    ///< free blocks at home in slabs (of which purged: see slab_purged_bytes)
    size_t slab_fresh_bytes;   ///< never carved part of slabs, and what a slab's tail cannot hold
    size_t run_slack_bytes;    ///< the part of large blocks' last units that nobody asked for
    size_t pages_dirty_bytes;  ///< free units that may hold touched pages
    size_t pages_clean_bytes;  ///< free units known to be untouched or given back
    size_t slab_purged_bytes;  ///< free blocks in slabs that touch a page given back: whole, so more than the pages
    size_t metadata_bytes;     ///< descriptors, tag map, thread heaps: touched estimate
    // What happened (events, not bytes).
    size_t heaps;             ///< heaps in existence: of threads, idle, first-class
    size_t heaps_idle;        ///< heaps whose threads ended, waiting for a new one
    size_t slabs;             ///< slabs in existence
    size_t runs;              ///< large blocks in existence
    size_t refills;           ///< slow malloc calls
    size_t flushes;           ///< times a thread cache sent blocks home
    size_t remote_publishes;  ///< groups of blocks handed to another thread's heap
    size_t remote_adoptions;  ///< such groups taken in by their owner
    size_t heap_adoptions;    ///< idle heaps taken over by a new thread
    size_t slab_steals;       ///< slabs taken from idle heaps
    size_t purges;            ///< times memory was given back to the kernel
    size_t purged_bytes;      ///< how much, in total
    size_t regret_bytes;      ///< how much of that was needed again within a second
} quarry_stats_t;

/// Fill *ret_stats. Threads: any. Cost: locks each heap in turn and walks its slabs; milliseconds.
QUARRY_API void quarry_stats_read(quarry_stats_t *ret_stats) QUARRY_NOEXCEPT;

/// Write the statistics to file descriptor `fd`, as one line of JSON or as text for people.
/// Allocates nothing. Returns 0, or -1 when the write failed.
QUARRY_API int quarry_stats_write(int fd, int as_json) QUARRY_NOEXCEPT;

QUARRY_END

#endif
