// SPDX-License-Identifier: MIT
// pages.h: runs of whole pages, as a pool and as a parent of other pools; mappings at an alignment; and advice.
//
//   quarry_pool_t *pages = quarry_pages_create(&(quarry_pages_options_t){.flags = QUARRY_PAGES_PARTS});
//   char *buffer = quarry_pool_alloc(pages, 1 << 20, 4096, QUARRY_POOL_ZERO);
//   quarry_pages_free_part(pages, buffer, 1 << 19);        // the first half goes
//   quarry_pool_free(pages, buffer + (1 << 19), 1 << 19);  // and the rest
//   quarry_pool_destroy(pages);
//
//   Owner           whoever allocated the run
//   Lifetime        until it is freed, whole or in parts, or the pool is destroyed
//   Initialization  undefined, or zero with QUARRY_POOL_ZERO (only pages that were used before are cleared)
//
// A run is as many whole pages as its size needs; size 0 is one page. What the pool knows of its pages lies
// elsewhere, so a write beyond a run damages another run at worst, and a run starts on a page.
// Threads: any (one lock), unless QUARRY_PAGES_UNLOCKED: then one at a time. Clearing is done outside of the lock.
// Cost: search, split and join in constant time, plus one bit operation per 64 pages; 24 bytes and three
// bits per page of region. Alignment: any power of two up to 1 GiB. All counters are exact.
#ifndef QUARRY_PAGES_H
#define QUARRY_PAGES_H

#include <quarry/pool.h>

QUARRY_BEGIN

#define QUARRY_PAGES_UNLOCKED 0x1u  ///< one thread at a time: no lock
#define QUARRY_PAGES_HUGE 0x2u      ///< regions on huge-page boundaries, huge pages wanted
#define QUARRY_PAGES_NO_HUGE 0x4u   ///< huge pages unwanted: memory grows page by page
/// the memory is a nameless file, shared with whoever gets its descriptor. A fork's child cannot allocate or free in it
#define QUARRY_PAGES_MEMFD 0x8u
#define QUARRY_PAGES_FIXED 0x10u  ///< never take regions by itself: only what quarry_pages_add_region gave
#define QUARRY_PAGES_PARTS 0x20u  ///< runs may be freed in parts (quarry_pages_free_part); checkers don't frame them

/// Zero is a good default for every field.
typedef struct quarry_pages_options {
    quarry_pool_options_t pool;  ///< parent NULL: pages of the kernel (or of the file)
    unsigned flags;              ///< QUARRY_PAGES_UNLOCKED ...
    size_t region_bytes;         ///< least size of a region; 0: 16 MiB, from a parent 1 MiB
    /// most memory of free runs that is kept for reuse before it goes back to the kernel; 0: 32 MiB
    size_t keep_bytes;
    const char *file;  ///< the memory is this file, shared; it must not exist. NULL: none
} quarry_pages_options_t;

/// An empty pool. NULL and errno: ENOMEM, EINVAL (the options), what opening the file says. The caller owns it until
/// quarry_pool_destroy, which leaves the file of `file` in place with what was in the pages.
QUARRY_API quarry_pool_t *quarry_pages_create(const quarry_pages_options_t *options) QUARRY_NOEXCEPT;

/// Give pages [ptr, ptr + bytes) back; all of one run, at page boundaries (bytes is rounded up). What remains on
/// either side are runs of their own, freed in the same way or by quarry_pool_free of their start. Anything else is
/// misuse, and so is a part of a run in a pool without QUARRY_PAGES_PARTS.
QUARRY_API void quarry_pages_free_part(quarry_pool_t *pages, void *ptr, size_t bytes) QUARRY_NOEXCEPT;

/// Memory of the caller's as a further region: `bytes` at `base`, both multiples of the page size; zero: it reads as
/// zero. It stays the caller's and must outlive the pool. 0, or -1 and ENOMEM, EINVAL.
QUARRY_API int quarry_pages_add_region(quarry_pool_t *pages, void *base, size_t bytes, int zero) QUARRY_NOEXCEPT;

/// Give back the memory of free runs until at most `keep` bytes of it are left, and all empty regions. Returns
/// the bytes that went back. Runs in use stay.
QUARRY_API size_t quarry_pages_trim(quarry_pool_t *pages, size_t keep) QUARRY_NOEXCEPT;

/// For pools in a file: its descriptor (the pool's own; -1: no file), and the place of an address in it (or
/// UINT64_MAX).
QUARRY_API int quarry_pages_fd(const quarry_pool_t *pages) QUARRY_NOEXCEPT;
QUARRY_API uint64_t quarry_pages_file_offset(quarry_pool_t *pages, const void *ptr) QUARRY_NOEXCEPT;

typedef struct quarry_pages_stats {
    size_t page_bytes;
    size_t regions;
    size_t held_pages;   ///< in regions
    size_t used_pages;   ///< in runs given out
    size_t dirty_pages;  ///< free, but with memory behind them
    size_t free_runs;
    size_t largest_run;      ///< free, in pages, rounded down to its bin
    uint64_t cleared_pages;  ///< ever, for QUARRY_POOL_ZERO
    uint64_t purged_pages;   ///< ever given back to the kernel
} quarry_pages_stats_t;
QUARRY_API void quarry_pages_stats(quarry_pool_t *pages, quarry_pages_stats_t *ret_stats) QUARRY_NOEXCEPT;

// ---- mappings -------------------------------------------------------------------------------------------

#define QUARRY_MAP_SHARED 0x1u     ///< stores are seen by others (and reach the file); else they are private
#define QUARRY_MAP_READ_ONLY 0x2u  ///< no stores

/// Map `bytes` of file `fd` from `offset` on (fd -1: zeroed memory) at a multiple of `alignment`, a power of two of at
/// least a page. Nothing else is left mapped around it. bytes are rounded up to pages; behind the end of a file the
/// rest of its last page reads as zero, pages after that end the process when touched (SIGBUS). NULL and errno:
/// EINVAL, EBADF, ENOMEM. The caller owns it until quarry_unmap. Threads: any. Cost: two to six system calls.
QUARRY_API void *quarry_map_aligned(
    int fd, uint64_t offset, size_t bytes, size_t alignment, unsigned flags) QUARRY_NOEXCEPT;
/// Unmap any whole pages of mappings: a part of one, or several that lie side by side, in one call. 0, or -1 and
/// EINVAL, ENOMEM.
QUARRY_API int quarry_unmap(void *addr, size_t bytes) QUARRY_NOEXCEPT;

// ---- advice ---------------------------------------------------------------------------------------------

/// What the program expects of some pages. The Linux version is the first one that knows the advice.
typedef enum quarry_advice {
    QUARRY_ADVICE_NORMAL,         ///< no expectation: ends SEQUENTIAL and RANDOM
    QUARRY_ADVICE_SEQUENTIAL,     ///< of a file: read in order, so the kernel reads further ahead
    QUARRY_ADVICE_RANDOM,         ///< of a file: read in any order, so the kernel reads nothing ahead
    QUARRY_ADVICE_WILL_NEED,      ///< of a file or in swap: the kernel begins to read the pages now
    QUARRY_ADVICE_POPULATE_READ,  ///< the pages are there, to be read, when the call returns (Linux 5.14)
    QUARRY_ADVICE_POPULATE,       ///< the pages are there, to be written, when the call returns (Linux 5.14)
    QUARRY_ADVICE_COLD,           ///< the first pages to go when memory is short (Linux 5.4)
    QUARRY_ADVICE_PAGE_OUT,       ///< the pages go to the file or to swap now; contents stay (Linux 5.4)
    /// contents are no longer needed: the kernel takes the pages when it wants memory. Until the next store a page
    /// reads as it was or as zero. Private anonymous memory only (Linux 4.5)
    QUARRY_ADVICE_FREE,
    /// the pages go now. Private memory reads as zero, or as its file; shared memory keeps its contents
    QUARRY_ADVICE_DROP,
    QUARRY_ADVICE_REMOVE,        ///< of shared memory: the contents go too, also for others and in the file
    QUARRY_ADVICE_HUGE,          ///< huge pages are wanted
    QUARRY_ADVICE_NO_HUGE,       ///< huge pages are not wanted
    QUARRY_ADVICE_COLLAPSE,      ///< the pages become huge ones now (Linux 6.1)
    QUARRY_ADVICE_MERGE,         ///< pages with equal contents may become one (KSM)
    QUARRY_ADVICE_NO_MERGE,      ///< ends MERGE
    QUARRY_ADVICE_NO_DUMP,       ///< left out of core files
    QUARRY_ADVICE_DUMP,          ///< ends NO_DUMP
    QUARRY_ADVICE_NO_FORK,       ///< the child of a fork does not have this memory
    QUARRY_ADVICE_FORK,          ///< ends NO_FORK
    QUARRY_ADVICE_WIPE_ON_FORK,  ///< the child of a fork has zeros here (Linux 4.14)
    QUARRY_ADVICE_KEEP_ON_FORK,  ///< ends WIPE_ON_FORK
} quarry_advice_t;

/// Tell the kernel what to expect of the pages of [addr, addr + bytes), which the caller owns. addr is at a page
/// boundary, and bytes are rounded up to pages: what lies behind a block in its last page is told of as well.
/// Mappings, runs of a pages pool and large blocks of any pool may be named. The mapping stays in any case.
/// 0, or -1 and errno, as the kernel has it:
///   EINVAL   addr is at no page boundary, bytes is 0, there is no such advice, or memory of this kind cannot take it
///            (FREE of a file, REMOVE of private memory, DROP and COLD of locked memory)
///   ENOTSUP  this kernel does not know the advice, or was built without it
///   ENOMEM   a part is not mapped, or there is no memory for POPULATE
///   EFAULT   POPULATE: a page cannot be had, such as one behind the end of a file
///   EBADF    WILL_NEED of memory that is no file, on kernels without swap
///   EACCES   REMOVE of a mapping that may not be written, or WILL_NEED of a file that is not the caller's
///   EAGAIN, EBUSY, EIO, EPERM   see madvise(2)
/// Part of the range may have taken the advice when the call fails. Threads: any. Cost: one system call; POPULATE
/// costs a fault for each page, DROP and PAGE_OUT one at the next access.
QUARRY_API int quarry_advise(void *addr, size_t bytes, quarry_advice_t advice) QUARRY_NOEXCEPT;

QUARRY_END
#endif
