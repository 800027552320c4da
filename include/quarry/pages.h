// SPDX-License-Identifier: MIT
// pages.h: runs of whole pages, as a pool and as a parent of other pools; mappings at an alignment; and advice.
//
//   quarry_pool_t *pages = quarry_pages_create(&(quarry_pages_options_t){.flags = QUARRY_PAGES_PARTS});
//   char *buffer = quarry_pool_alloc(pages, 1 << 20, 4096, QUARRY_POOL_ZERO);
//   quarry_pages_free_part(pages, buffer, 1 << 19);        // the first half goes
//   quarry_pool_free(pages, buffer + (1 << 19), 1 << 19);  // and the rest
//   quarry_pool_destroy(pages);
//
//   Owner           the thread that allocated the run, or the one that it was handed to
//   Lifetime        until it is freed, whole or in parts, or the pool is destroyed
//   Initialization  undefined, or zero with QUARRY_POOL_ZERO (only pages that were used before are cleared)
//
// A run is as many whole pages as its size needs. Size 0 is one page. The pool keeps its records apart from the pages.
// So a run starts on a page, and a write beyond its end damages another run at worst.
//
//  - Threads: any thread may call any function, under one lock. With QUARRY_PAGES_UNLOCKED one thread at a time may.
//    Pages are cleared outside of the lock.
//  - Cost: search, split and join take constant time, plus one bit operation per 64 pages. The records take 24 bytes
//    and three bits per page of a region.
//  - Alignment: any power of two up to 1 GiB.
//  - Statistics: all counters are exact.
#ifndef QUARRY_PAGES_H
#define QUARRY_PAGES_H

#include <quarry/pool.h>

QUARRY_BEGIN

#define QUARRY_PAGES_UNLOCKED 0x1u  ///< no lock: one thread at a time uses the pool
#define QUARRY_PAGES_HUGE 0x2u      ///< regions lie on huge-page boundaries, and ask for huge pages
#define QUARRY_PAGES_NO_HUGE 0x4u   ///< no huge pages: memory grows page by page
/// the memory is a nameless file, for processes that get its descriptor. A fork's child cannot allocate or free in it
#define QUARRY_PAGES_MEMFD 0x8u
#define QUARRY_PAGES_FIXED 0x10u  ///< only the regions of quarry_pages_add_region are used
#define QUARRY_PAGES_PARTS 0x20u  ///< runs may be freed in parts; checkers put nothing around them

/// Zero is a good default for every field.
typedef struct quarry_pages_options {
    quarry_pool_options_t pool;  ///< parent NULL: pages of the kernel (or of the file)
    unsigned flags;              ///< QUARRY_PAGES_UNLOCKED ...
    size_t region_bytes;         ///< least size of a region; 0: 16 MiB, from a parent 1 MiB
    /// memory of free runs beyond this goes back to the kernel, the rest is kept for reuse; 0: 32 MiB
    size_t keep_bytes;
    const char *file;  ///< path of a new file that is the memory, shared; it must not exist. NULL: none
} quarry_pages_options_t;

/// Make an empty pool. `options` may be NULL. The caller owns the pool until quarry_pool_destroy, which leaves the file
/// of `file` in place with the contents of its pages. On failure it returns NULL with errno ENOMEM, EINVAL (the
/// options) or the error of opening the file.
QUARRY_API quarry_pool_t *quarry_pages_create(const quarry_pages_options_t *options) QUARRY_NOEXCEPT;

/// Free the pages [ptr, ptr + bytes) of one run. `ptr` lies at a page boundary, and `bytes` is rounded up to pages.
/// What remains on either side becomes a run of its own, to be freed in the same way or by quarry_pool_free of its
/// start. Other arguments are misuse and end the process, and so does a part of a run in a pool without
/// QUARRY_PAGES_PARTS. Threads and cost: as for every call of the pool.
QUARRY_API void quarry_pages_free_part(quarry_pool_t *pages, void *ptr, size_t bytes) QUARRY_NOEXCEPT;

/// Add `bytes` of the caller's memory at `base` as a further region. Both are multiples of the page size. `zero` says
/// that the memory reads as zero. It stays the caller's and must outlive the pool. A pool in a file takes no region.
/// Returns 0, or -1 with ENOMEM or EINVAL. Cost: a comparison with each region that the pool has.
QUARRY_API int quarry_pages_add_region(quarry_pool_t *pages, void *base, size_t bytes, int zero) QUARRY_NOEXCEPT;

/// Give memory of free runs back to the kernel until at most `keep` bytes of it are left, and all empty regions to the
/// parent. Returns the bytes that went back. Runs in use stay. Cost: a system call for each run that goes back.
QUARRY_API size_t quarry_pages_trim(quarry_pool_t *pages, size_t keep) QUARRY_NOEXCEPT;

/// The descriptor of the pool's file, or -1 if there is none. The pool owns it: do not close it.
QUARRY_API int quarry_pages_fd(const quarry_pool_t *pages) QUARRY_NOEXCEPT;
/// The place of an address in the pool's file, in bytes, or UINT64_MAX if the address is not in it.
QUARRY_API uint64_t quarry_pages_file_offset(quarry_pool_t *pages, const void *ptr) QUARRY_NOEXCEPT;

/// A snapshot of a pool of pages. Counters begin when the pool is made.
typedef struct quarry_pages_stats {
    size_t page_bytes;       ///< bytes of a page
    size_t regions;          ///< areas that runs are cut from
    size_t held_pages;       ///< pages in regions
    size_t used_pages;       ///< pages in runs that are in use
    size_t dirty_pages;      ///< free pages that have memory behind them
    size_t free_runs;        ///< number of free runs
    size_t largest_run;      ///< the longest free run, in pages, rounded down to its bin
    uint64_t cleared_pages;  ///< pages cleared for QUARRY_POOL_ZERO
    uint64_t purged_pages;   ///< pages given back to the kernel
} quarry_pages_stats_t;
/// Fill *ret_stats.
QUARRY_API void quarry_pages_stats(quarry_pool_t *pages, quarry_pages_stats_t *ret_stats) QUARRY_NOEXCEPT;

// ---- mappings -------------------------------------------------------------------------------------------

#define QUARRY_MAP_SHARED 0x1u     ///< stores reach the file and other processes; else they are private
#define QUARRY_MAP_READ_ONLY 0x2u  ///< the mapping cannot be written

/// Map `bytes` of file `fd` from `offset` on, at a multiple of `alignment`. With `fd` -1 the memory is zeroed and has
/// no file. `alignment` is a power of two of at least a page, and `bytes` is rounded up to pages. Nothing else stays
/// mapped around the result. The rest of a file's last page reads as zero. A page beyond it ends the process at a touch
/// (SIGBUS). The caller owns the mapping until quarry_unmap. NULL with errno EINVAL, EBADF or ENOMEM on failure.
/// Threads: any. Cost: two to six system calls.
QUARRY_API void *quarry_map_aligned(
    int fd, uint64_t offset, size_t bytes, size_t alignment, unsigned flags) QUARRY_NOEXCEPT;
/// Unmap the whole pages [addr, addr + bytes): a part of a mapping, or several mappings that lie side by side. Returns
/// 0, or -1 with EINVAL or ENOMEM. Threads: any. Cost: one system call.
QUARRY_API int quarry_unmap(void *addr, size_t bytes) QUARRY_NOEXCEPT;

// ---- advice ---------------------------------------------------------------------------------------------

/// What the program expects of some pages. A Linux version is the first that knows the advice.
typedef enum quarry_advice {
    QUARRY_ADVICE_NORMAL,         ///< no expectation: ends SEQUENTIAL and RANDOM
    QUARRY_ADVICE_SEQUENTIAL,     ///< of a file: read in order, so the kernel reads further ahead
    QUARRY_ADVICE_RANDOM,         ///< of a file: read in any order, so the kernel reads nothing ahead
    QUARRY_ADVICE_WILL_NEED,      ///< of a file or in swap: the kernel begins to read the pages now
    QUARRY_ADVICE_POPULATE_READ,  ///< the pages are there, to be read, when the call returns (Linux 5.14)
    QUARRY_ADVICE_POPULATE,       ///< the pages are there, to be written, when the call returns (Linux 5.14)
    QUARRY_ADVICE_COLD,           ///< the first pages to go when memory is short (Linux 5.4)
    QUARRY_ADVICE_PAGE_OUT,       ///< the pages go to the file or to swap now; contents stay (Linux 5.4)
    /// the contents are no longer needed, and the kernel takes the pages when it wants memory. Until the next store a
    /// page reads as it was or as zero. Only private anonymous memory takes it (Linux 4.5)
    QUARRY_ADVICE_FREE,
    /// the pages go now. Private memory reads as zero, or as its file; shared memory keeps its contents
    QUARRY_ADVICE_DROP,
    QUARRY_ADVICE_REMOVE,        ///< of shared memory: the contents go too, for all processes and in the file
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

/// Tell the kernel what to expect of the pages of [addr, addr + bytes), which the caller owns. `addr` lies at a page
/// boundary. `bytes` is rounded up to pages, so the advice covers all of the last page, also what lies behind a block.
/// Mappings, runs of a pages pool and large blocks of any pool may be named. The mapping stays with every advice.
/// Advice is of the pages, and lasts when the block is freed: end NO_FORK, WIPE_ON_FORK and NO_DUMP before.
/// Returns 0, or -1 with the kernel's errno. Some of the pages may have taken the advice when the call fails.
///
///  - EINVAL: `addr` is at no page boundary, `bytes` is 0, or there is no such advice. Or memory of this kind cannot
///    take it: FREE of a file, REMOVE of private memory, DROP and COLD of locked memory.
///  - ENOTSUP: this kernel does not know the advice, or was built without it.
///  - ENOMEM: a part is not mapped, or there is no memory for POPULATE.
///  - EFAULT: POPULATE of a page that cannot be had, such as one behind the end of a file.
///  - EBADF: WILL_NEED of memory that is no file, on kernels without swap.
///  - EACCES: REMOVE of a mapping that may not be written, or WILL_NEED of a file that is not the caller's.
///  - EAGAIN, EBUSY, EIO, EPERM: see madvise(2).
///
/// Threads: any. Cost: one system call. POPULATE also costs a fault for each page. DROP and PAGE_OUT cost one for each
/// page at the next access.
QUARRY_API int quarry_advise(void *addr, size_t bytes, quarry_advice_t advice) QUARRY_NOEXCEPT;

QUARRY_END
#endif
