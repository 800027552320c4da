// SPDX-License-Identifier: MIT
// stats_page.h: the statistics page: what a process on Quarry says of its memory to others, at any time.
//
// It is plain memory of the process, zero-initialised data of the library, so no call makes it and it ends with the
// process. Find it in /proc/PID/maps and read it through /proc/PID/mem: at a multiple of QUARRY_STATS_PAGE_ALIGN in the
// .bss of a module, the magic word. Check version and pid, and that born_ns is not before the process's start: a child
// has a copy of its parent's until it has its own. A process has one for each copy of the library in it.
// docs/stats-page.md tells the rest.
//
// Never trust it: the process may have written anything there. Offsets and numbers of entries stand in the head; a
// reader takes them from there, within the page, so that later versions may have more of each. All words are in the
// byte order of the machine. Times are of CLOCK_MONOTONIC, in nanoseconds.
#ifndef QUARRY_STATS_PAGE_H
#define QUARRY_STATS_PAGE_H

#include <quarry/attr.h>

QUARRY_BEGIN

#define QUARRY_STATS_PAGE_MAGIC UINT64_C(0x5354415453595251)  ///< "QRYSTATS" in memory, on little-endian machines
#define QUARRY_STATS_PAGE_VERSION 2u                          ///< changes when a reader of the old one would be wrong
#define QUARRY_STATS_PAGE_ALIGN 4096u                         ///< whatever the system's page is
#define QUARRY_STATS_PAGE_HEAP 1u                             ///< in `parts`: a heap writes here
#define QUARRY_STATS_PAGE_POOLS 2u                            ///< in `parts`: pools write here
#define QUARRY_STATS_PAGE_CLASSES 127u
#define QUARRY_STATS_PAGE_POOL_COUNT 128u
#define QUARRY_STATS_PAGE_RANGES 128u
#define QUARRY_STATS_PAGE_NAME_BYTES 32u
#define QUARRY_STATS_PAGE_UNKNOWN UINT64_MAX  ///< in a pool's numbers: its kind cannot say without stopping the program

/// At the beginning; constant but for `parts`.
typedef struct quarry_stats_page_head {
    uint64_t magic;           ///< written last
    uint32_t version, bytes;  ///< bytes: of the whole
    /// as the process itself sees it, in its own pid namespace; 0: in a child without a page of its own
    int32_t pid;
    uint32_t parts;        ///< QUARRY_STATS_PAGE_HEAP, QUARRY_STATS_PAGE_POOLS
    uint64_t born_ns;      ///< when this process began to write it
    char library[16];      ///< version of the library, NUL-terminated
    uint32_t page_bytes;   ///< of the system
    uint32_t heap_at;      ///< offset of quarry_stats_page_heap_t
    uint32_t sums_bytes;   ///< size of quarry_stats_page_sums_t
    uint32_t class_count;  ///< rows there may be, and ...
    uint32_t class_bytes;  ///< ... the size of each
    uint32_t pools_at;     ///< offset of quarry_stats_page_pools_t
    uint32_t pool_count, pool_bytes;
    uint32_t range_count, range_bytes;  ///< behind the rows of classes
    uint64_t sampler_at;                ///< address of quarry_stats_page_sampler_t in the process; 0: there is none
    uint64_t sampler_bytes;             ///< size of quarry_stats_page_sampler_t
} quarry_stats_page_head_t;

/// Sums over the heap. Bytes unless the name says otherwise.
///   mapped = slabs + run_live + run_slack + huge_live + huge_cached + pages_dirty + pages_clean
///   slabs  = given out + slab_free + slab_mailed + slab_fresh;  given out = live + cached
/// exactly when nobody was working meanwhile.
typedef struct quarry_stats_page_sums {
    uint64_t at_ns;              ///< when these were taken
    uint64_t mapped_bytes;       ///< address space open for blocks
    uint64_t slabs_bytes;        ///< slabs, whole
    uint64_t slab_free_bytes;    ///< free blocks at home in slabs, of which ...
    uint64_t slab_purged_bytes;  ///< ... blocks that touch a page given back: whole blocks, so more than the pages
    uint64_t slab_mailed_bytes;  ///< free blocks on their way home from other threads
    uint64_t slab_fresh_bytes;   ///< of slabs: never given out yet, and tails; as of fresh_at_ns
    uint64_t fresh_at_ns;
    /// free blocks in threads' caches, as was last counted: by each thread, or while it slept
    uint64_t cached_bytes, cached_blocks;
    uint64_t run_live_bytes, run_slack_bytes;  ///< large objects, and the ends of their last units
    uint64_t huge_live_bytes;                  ///< objects with a mapping of their own
    uint64_t huge_cached_bytes;                ///< freed ones that could not be unmapped yet; no memory
    uint64_t pages_dirty_bytes;                ///< free units that may hold touched pages
    uint64_t pages_clean_bytes;                ///< free units without memory
    /// beside mapped_bytes: descriptors and tables, by an estimate of what is touched
    uint64_t metadata_bytes;
    uint64_t heaps, heaps_idle, slabs, runs, huges;  // numbers that exist
    // Events since the start.
    uint64_t refills, flushes, remote_publishes, remote_adoptions, heap_adoptions, slab_steals, purges;
    uint64_t purged_bytes;
    uint64_t regret_bytes;  ///< of which was needed again within a second
    uint64_t reserved[1];
} quarry_stats_page_sums_t;

/// Slabs of one size of block.
typedef struct quarry_stats_page_class {
    uint32_t number, block_bytes;
    uint64_t slabs, slabs_bytes;
    uint64_t out_blocks;                  ///< given out: live, or in a thread's cache
    uint64_t free_blocks, purged_blocks;  ///< free ones at home or on their way; of which touch pages given back
    uint64_t fresh_bytes;
    /// of out_blocks: free ones in threads' caches, as was last counted. Not there if class_bytes is less than 64
    uint64_t cached_blocks;
} quarry_stats_page_class_t;

/// Addresses of the heap, also where nothing is mapped or resident.
typedef struct quarry_stats_page_range {
    uint64_t base, bytes;
    uint64_t kind;  ///< QUARRY_STATS_PAGE_RANGE_...
} quarry_stats_page_range_t;

#define QUARRY_STATS_PAGE_RANGE_BLOCKS 1u  ///< an arena: slabs and runs
#define QUARRY_STATS_PAGE_RANGE_HUGE 2u    ///< a large object, live or kept
#define QUARRY_STATS_PAGE_RANGE_META 3u    ///< records and tables

typedef struct quarry_stats_page_heap {
    /// How many times sums were written. The newest are sums[turn & 1]: copy them, then look at `turn` again; if it has
    /// changed, they may be a mixture: try again. 0: none yet.
    uint64_t turn;
    uint64_t skipped;  ///< times the heap was to be looked at and was too busy
    quarry_stats_page_sums_t sums[2];
    /// The same for the list of classes, which is counted less often. Its rows are classes[0 ... class_rows -
    /// 1][class_turn & 1], in no particular order.
    uint64_t class_turn;
    uint64_t class_rows[2], class_at_ns[2];
    quarry_stats_page_class_t classes[QUARRY_STATS_PAGE_CLASSES][2];
    /// Where the heap is; written together with the classes, so of the same turn: ranges[0 ... range_rows -
    /// 1][class_turn & 1].
    uint64_t range_rows[2];
    uint64_t range_missing_bytes[2];  ///< of large objects for which there was no row
    quarry_stats_page_range_t ranges[QUARRY_STATS_PAGE_RANGES][2];
} quarry_stats_page_heap_t;

/// A pool, written whenever it gets or gives back memory: the numbers are of that moment.
typedef struct quarry_stats_page_pool {
    /// Bit 0: it is being written; bit 1: there is a pool. Copy what follows, then look again: if `turn` has changed,
    /// try again.
    uint64_t turn;
    uint64_t at_ns;
    char kind[8];
    char name[QUARRY_STATS_PAGE_NAME_BYTES];
    uint64_t held_bytes, peak_held_bytes, limit_bytes;  ///< limit 0: none
    uint64_t used_bytes, requested_bytes;               ///< or QUARRY_STATS_PAGE_UNKNOWN
    /// exact for pools that are logged; or QUARRY_STATS_PAGE_UNKNOWN
    uint64_t allocs, frees, resizes;
    uint64_t slow_calls, chunk_gets, chunk_puts, slow_ns;
} quarry_stats_page_pool_t;

typedef struct quarry_stats_page_pools {
    uint64_t others, others_held_bytes;  ///< pools for which there was no entry
    quarry_stats_page_pool_t pools[QUARRY_STATS_PAGE_POOL_COUNT];
} quarry_stats_page_pools_t;

#define QUARRY_STATS_PAGE_SAMPLER_ON 64u
#define QUARRY_STATS_PAGE_SAMPLER_ADAPTS 128u
#define QUARRY_STATS_PAGE_SAMPLER_GUARDS (UINT64_C(1) << 63)
#define QUARRY_STATS_PAGE_SAMPLER_LEASE_NS UINT64_C(10000000000)

/// The sampler, which is off until somebody writes to `control`: some allocations are noted with their call
/// stacks, and their frees. Not on the page, but where its head says. Tables in the process's memory say what is known;
/// their addresses are 0 until the first sample. Rows are written while they are read.
typedef struct quarry_stats_page_sampler {
    /// written by others. 0: off. On: QUARRY_STATS_PAGE_SAMPLER_ON, in the six bits below it the binary logarithm of
    /// the mean distance of samples in bytes, at most 40, and from bit 8 on a serial number, another one each time. A
    /// sampler whose serial number is 0 has been on since the library's constructor ran. Blocks from before that are
    /// counted, and not sampled. With QUARRY_STATS_PAGE_SAMPLER_ADAPTS the process itself doubles the distance where
    /// samples are many, and halves it where they are few. With QUARRY_STATS_PAGE_SAMPLER_GUARDS it is on for the
    /// process itself, which guards some blocks (option guard), and no event is told. A reader takes that for off. It
    /// writes what it wants without that bit, and at its end what was there before, or 0
    uint64_t control;
    uint64_t events;                              ///< how many there were; number n is in row n % event_rows
    uint64_t lost;                                ///< samples that were not taken: there was no memory, or no row left
    uint64_t events_at, event_rows, event_bytes;  ///< of quarry_stats_page_event_t
    uint64_t live_at, live_rows, live_bytes;      ///< of quarry_stats_page_sample_t; row 0 is none
    uint64_t nodes_at, node_rows, node_bytes;     ///< of quarry_stats_page_node_t, by id; row 0 is none
    /// written by others. 0: the sampler stays on. Else each reader writes another number more often than each
    /// QUARRY_STATS_PAGE_SAMPLER_LEASE_NS. A sample, or the end of one, that finds the same number for longer switches
    /// the sampler off.
    uint64_t lease;
} quarry_stats_page_sampler_t;

#define QUARRY_STATS_PAGE_EVENT_BIRTH 1u
#define QUARRY_STATS_PAGE_EVENT_DEATH 2u

/// A sampled block was born, or ended. A block of n bytes was sampled with probability 1 - exp(-n / 2^rate).
typedef struct quarry_stats_page_event {
    uint64_t turn;  ///< one more than its number; 0 while the row is written. Copy what follows, and look again
    uint64_t time_ns;
    uint64_t address;
    uint64_t bytes;         ///< asked for
    uint32_t what, thread;  ///< thread: the kernel's number, the one that did it
    uint32_t stack, rate;   ///< stack: the innermost frame of the allocation, a row of the nodes; 0: not known
} quarry_stats_page_event_t;

/// A sampled block that lives.
typedef struct quarry_stats_page_sample {
    uint64_t address;  ///< 0: the row is unused
    uint64_t bytes;
    uint64_t born_ns;
    uint32_t stack, rate;
    uint32_t thread, reserved;
} quarry_stats_page_sample_t;

/// A frame of a stack.
typedef struct quarry_stats_page_node {
    uint64_t pc;      ///< bit 63: the address itself, not one that is returned to. All bits: unloaded since
    uint32_t parent;  ///< the frame that called it, in the bits below 31; 0: none is known
    uint32_t next;    ///< of no use to others
} quarry_stats_page_node_t;

typedef struct quarry_stats_page {
    quarry_stats_page_head_t head;
    quarry_stats_page_heap_t heap;
    quarry_stats_page_pools_t pools;
} quarry_stats_page_t;

#ifndef __cplusplus
_Static_assert(sizeof(quarry_stats_page_head_t) == 104, "head");
_Static_assert(offsetof(quarry_stats_page_head_t, sampler_at) == 88, "head");
_Static_assert(sizeof(quarry_stats_page_sampler_t) == 104 && sizeof(quarry_stats_page_event_t) == 48, "sampler");
_Static_assert(sizeof(quarry_stats_page_sample_t) == 40 && sizeof(quarry_stats_page_node_t) == 16, "sampler");
_Static_assert(offsetof(quarry_stats_page_head_t, heap_at) == 52, "head");
_Static_assert(offsetof(quarry_stats_page_head_t, pools_at) == 68, "head");
_Static_assert(sizeof(quarry_stats_page_sums_t) == 256, "sums");
_Static_assert(
    offsetof(quarry_stats_page_sums_t, cached_bytes) == 64 && offsetof(quarry_stats_page_sums_t, metadata_bytes) == 128,
    "sums");
_Static_assert(
    offsetof(quarry_stats_page_sums_t, refills) == 176 && offsetof(quarry_stats_page_sums_t, purged_bytes) == 232,
    "sums");
_Static_assert(sizeof(quarry_stats_page_class_t) == 64, "class");
_Static_assert(
    offsetof(quarry_stats_page_heap_t, sums) == 16 && offsetof(quarry_stats_page_heap_t, class_turn) == 528, "heap");
_Static_assert(offsetof(quarry_stats_page_heap_t, classes) == 568, "heap");
_Static_assert(offsetof(quarry_stats_page_heap_t, range_rows) == 568 + 2 * 64 * QUARRY_STATS_PAGE_CLASSES, "heap");
_Static_assert(sizeof(quarry_stats_page_range_t) == 24, "range");
_Static_assert(sizeof(quarry_stats_page_pool_t) == 152 && offsetof(quarry_stats_page_pool_t, held_bytes) == 56, "pool");
_Static_assert(offsetof(quarry_stats_page_pools_t, pools) == 16, "pools");
#endif

QUARRY_END

#endif
