// SPDX-License-Identifier: MIT
// fifo.h: a pool for objects that are freed roughly in the order in which they were made.
//
//   quarry_pool_t *requests = quarry_fifo_create(&(quarry_fifo_options_t){.pool.name = "requests"});
//   request *r = p_new(requests, request, 1);     // by one thread, the owner. p_new is of <quarry/short.h>
//   hand_over(r);
//   p_delete(requests, &r);                       // by any thread
//   quarry_pool_destroy(requests);                // at once, or with the last p_delete
//
//   Owner           of a block: the thread that holds the pointer. Of the pool: the thread that made or adopted the
//                   pool
//   Lifetime        until it is freed, one by one, in any order, by any thread
//   Initialization  zero if asked for (QUARRY_NEW), else undefined (QUARRY_NEW_RAW)
//
// Blocks lie side by side in pages of 64 KiB, without headers; a page ends when its last block is
// freed. So one block that lives long holds a whole page: docs/pools/fifo.md shows when that matters.
//
// Threads: allocation, resize and check belong to the owner; free to everybody, and it takes no lock but when a
// page ends. The owner allocates and frees without atomic read-modify-write operations. Any thread may destroy
// the pool when the owner has made its last call.
// Cost: about 13 instructions for an allocation, 23 for a free by the owner; twice that through QUARRY_NEW.
// Alignment: at least 8, at most 4096. Sizes are rounded up to 8.
// Sizes: the pool does not know the sizes of blocks (no QUARRY_POOL_SIZES). A free does not need them. A resize needs
// the true old size, and refuses QUARRY_SIZE_UNKNOWN with EINVAL. The newest block grows
// in place when the page has room; any block shrinks in place.
// Statistics: allocs and frees are always exact; used_bytes is what lies in pages with a live block;
// requested_bytes has sizes rounded up to 8 unless the pool is checked or logged.
// Destruction with live blocks is deferred: their memory stays until each is freed; the last free, in
// whatever thread, ends the pool. Allocation from it is a fault from quarry_pool_destroy on.
// Chunks go back to a parent that is not QUARRY_POOL_SHARED in the owner's calls only; while such a pool waits for
// its last blocks, the thread that frees one must be one that may use the parent.
#ifndef QUARRY_FIFO_H
#define QUARRY_FIFO_H

#include <quarry/pool.h>

QUARRY_BEGIN

typedef struct quarry_fifo_options {
    quarry_pool_options_t pool;
    size_t page_bytes;     ///< of a page; rounded up to a power of two, 64 KiB to 1 GiB; 0: 64 KiB
    unsigned spare_pages;  ///< most empty pages kept for reuse; 0: one, and one more for each 16 in use
} quarry_fifo_options_t;

/// Make a FIFO whose owner is the calling thread. NULL options: defaults. NULL and ENOMEM when there is no
/// memory for its first page. End it by quarry_pool_destroy.
QUARRY_API quarry_pool_t *quarry_fifo_create(const quarry_fifo_options_t *options) QUARRY_NOEXCEPT;

/// The calling thread becomes the owner. The former owner must have made its last call as owner before (joined,
/// or told so by a lock); afterwards it may still free, like every thread. Cost: a walk over the pages.
QUARRY_API void quarry_fifo_adopt(quarry_pool_t *pool) QUARRY_NOEXCEPT;

/// Give spare pages back to the parent. For the owner, when the pool will be idle for long.
QUARRY_API void quarry_fifo_trim(quarry_pool_t *pool) QUARRY_NOEXCEPT;

// ---- the fast paths ----------------------------------------------------------------------------
// What follows is here to be inlined; its fields belong to the library.

/// The part of a FIFO that allocation touches: one cache line.
typedef struct quarry_fifo {
    quarry_pool_t pool;
    char *pos;        // where the next block begins; a multiple of 8
    char *limit;      // end of the page; with pos == limit every allocation takes the slow path
    char *clean;      // what lies in [pos, clean) is zero
    uint64_t blocks;  // allocated in the current page
    uintptr_t mask;   // address of a block & mask: its page
} quarry_fifo_t;

/// The part of a page that a free touches. It lies at one of 16 places at the beginning of the page, so that
/// the heads of different pages do not compete for the same few lines of a cache.
typedef struct quarry_fifo_page {
    uintptr_t key;    // the owner's token ^ the pool
    uint64_t local;   // blocks not freed by the owner; large while the page is current. Written by the owner
    uint64_t remote;  // blocks freed by other threads; equal to `local`: the page is empty
} quarry_fifo_page_t;

QUARRY_API void *quarry_fifo_alloc_slow(
    quarry_pool_t *pool, size_t size, size_t alignment, unsigned flags) QUARRY_NOEXCEPT;
QUARRY_API void quarry_fifo_free_slow(quarry_pool_t *pool, void *ptr, size_t size) QUARRY_NOEXCEPT;
QUARRY_API void quarry_fifo_page_end(quarry_pool_t *pool, quarry_fifo_page_t *page) QUARRY_NOEXCEPT;
QUARRY_API void quarry_fifo_clean(quarry_fifo_t *fifo, char *block, char *next) QUARRY_NOEXCEPT;

/// The calling thread, as a number: what no other thread has while it lives.
static inline uintptr_t quarry_fifo_thread(void) {
    uintptr_t token;
#if defined(__x86_64__)
    __asm__("mov %%fs:0, %0"
            : "=r"(token));
#elif defined(__aarch64__)
    __asm__("mrs %0, tpidr_el0"
            : "=r"(token));
#else
    token = (uintptr_t)&errno;
#endif
    return token;
}

static inline quarry_fifo_page_t *quarry_fifo_page_of(uintptr_t mask, const void *ptr) {
    uintptr_t page = (uintptr_t)ptr & mask;
    return (quarry_fifo_page_t *)(page + ((page >> 9) & 0x780));
}

/// quarry_pool_alloc without the indirect call. `pool` must be a FIFO.
static inline __attribute__((always_inline)) void *quarry_fifo_alloc(
    quarry_pool_t *pool, size_t size, size_t alignment, unsigned flags) {
    quarry_fifo_t *f = (quarry_fifo_t *)pool;
    char *p = f->pos;
    // limit is a multiple of 64, so that aligning does not carry p beyond it.
    if (alignment - 1 > 7) {
        if (__builtin_expect(alignment - 1 > 63, 0)) return quarry_fifo_alloc_slow(pool, size, alignment, flags);
        p = (char *)(((uintptr_t)p + alignment - 1) & -alignment);
    }
    if (__builtin_expect((alignment & (alignment - 1)) || size - 1 >= (size_t)(f->limit - p), 0))
        return quarry_fifo_alloc_slow(pool, size, alignment, flags);
    char *next = p + ((size + 7) & ~(size_t)7);
    // One writer; atomic for quarry_pool_stats from elsewhere.
    __atomic_store_n(&f->pos, next, __ATOMIC_RELAXED);
    __atomic_store_n(&f->blocks, f->blocks + 1, __ATOMIC_RELAXED);
    if ((flags & QUARRY_POOL_ZERO) && __builtin_expect(next > f->clean, 0)) quarry_fifo_clean(f, p, next);
    return p;
}

/// quarry_pool_free without the indirect call. `pool` must be a FIFO, ptr not NULL.
///
/// The owner reads `remote` before it publishes `local`, other threads read `local` before they publish `remote`:
/// so at most one of them sees the two equal, and it ends the page (docs/pools/fifo.md).
static inline __attribute__((always_inline)) void quarry_fifo_free(quarry_pool_t *pool, void *ptr, size_t size) {
    quarry_fifo_t *f = (quarry_fifo_t *)pool;
    quarry_fifo_page_t *page = quarry_fifo_page_of(f->mask, ptr);
    if (__builtin_expect(pool->mode != 0, 0) ||
        __builtin_expect(
            __atomic_load_n(&page->key, __ATOMIC_RELAXED) != (quarry_fifo_thread() ^ (uintptr_t)pool), 0)) {
        quarry_fifo_free_slow(pool, ptr, size);
        return;
    }
    uint64_t remote = __atomic_load_n(&page->remote, __ATOMIC_ACQUIRE);
    uint64_t local = page->local - 1;
    __atomic_store_n(&page->local, local, __ATOMIC_RELEASE);
    if (__builtin_expect((int64_t)(local - remote) <= 0, 0)) quarry_fifo_page_end(pool, page);
}

QUARRY_END

/// QUARRY_NEW, QUARRY_NEW_RAW and QUARRY_DELETE without the indirect call.
#define QUARRY_FIFO_NEW(pool, T, n) ((T *)quarry_fifo_alloc((pool), QUARRY_ARRAY_(T, n), QUARRY_POOL_ZERO))
#define QUARRY_FIFO_NEW_RAW(pool, T, n) ((T *)quarry_fifo_alloc((pool), QUARRY_ARRAY_(T, n), 0))
#define QUARRY_FIFO_DELETE(pool, pp)                                                         \
    do {                                                                                     \
        __typeof__(pp) quarry_pp_ = (pp);                                                    \
        if (*quarry_pp_) quarry_fifo_free((pool), (void *)*quarry_pp_, QUARRY_SIZE_UNKNOWN); \
        *quarry_pp_ = NULL;                                                                  \
    } while (0)

#endif
