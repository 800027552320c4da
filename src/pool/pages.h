// SPDX-License-Identifier: MIT
// pages.h: the structures of a pool of page runs.
//
//   pages.c          the operations, and the lock
//   pages_run.c      free runs: bins, splitting, joining
//   pages_region.c   regions: where pages come from and go back to
//   pages_map.c      quarry_map_aligned
//
// A region is a range of pages; for each there are a descriptor and three bits, in memory of our own:
//
//   used    given out
//   start   the first page of a run that was given out
//   dirty   not used: its contents are unknown, and there may be memory behind it. Used: whether it was dirty
//           when it was given out. So giving out changes no bit, and clearing can read them without the lock.
//
// A free run has its length in the descriptors of its first and its last page, and its links in those of
// the first. No two free runs are neighbours. A run in use has no more than its bits: so any part of it
// can be freed, and its length is the distance to the next start or unused page.
//
// The lock covers everything here. While a run is being cleared, its bits belong to who asked for it; words of bitmaps
// are shared with neighbours, so they are atomic, with one writer at a time.
#ifndef QY_POOL_PAGES_H
#define QY_POOL_PAGES_H

#include <quarry/pages.h>

#include "base/num.h"
#include "pool/bins.h"
#include "pool/pool.h"

#define QY_PAGES_LOG2 40u  // runs below 2^40 pages
#define QY_PAGES_BINS QY_BINS(QY_PAGES_LOG2)
#define QY_PAGES_REGIONS 4096u  // at most; they grow with the pool

typedef _Atomic uint64_t qy_page_bits_t;

typedef struct qy_page {
    qy_list_t link;   // of the first page of a free run, in its bin
    uint32_t count;   // of the first and last page of a free run: its pages
    uint32_t region;  // of the first: the region's number
} qy_page_t;

typedef struct qy_pages_region {
    char *base;
    size_t pages, used;
    qy_page_t *page;
    qy_page_bits_t *bits_used, *bits_start, *bits_dirty;
    void *records;  // page and bits, one object
    size_t record_bytes;
    uint64_t offset;     // in the file
    size_t chunk_bytes;  // as they came; a parent's are not always whole pages
    bool fixed;          // the caller's, or of a file: not given back
    bool purgeable;      // its pages can be given back to the kernel one by one
    uint32_t number;
} qy_pages_region_t;

typedef struct quarry_pages {
    quarry_pool_t pool;
    qy_lock_t lock;
    unsigned flags;
    size_t page, shift;  // bytes, and their logarithm
    size_t region_bytes, keep_pages, huge_bytes;
    _Atomic size_t used_pages;
    size_t held_pages, dirty_pages, free_runs;
    uint64_t cleared, purged;
    int fd;
    bool foreign;  // a fork's child, with the memory in a file
    uint64_t file_bytes;
    uint32_t regions, region_room;
    qy_pages_region_t **region;   // by number; NULL: none
    qy_pages_region_t **ordered;  // by address; `regions` of them
    uint64_t bitmap[(QY_PAGES_BINS + 63) / 64];
    qy_list_t bins[QY_PAGES_BINS];
} qy_pages_t;

QY_INLINE void qy_pages_enter(qy_pages_t *p) {
    if (!(p->flags & QUARRY_PAGES_UNLOCKED)) qy_lock_take(&p->lock);
}
QY_INLINE void qy_pages_leave(qy_pages_t *p) {
    if (!(p->flags & QUARRY_PAGES_UNLOCKED)) qy_lock_drop(&p->lock);
}

// At the head of what is called with the lock.
#define QY_PAGES_NEEDS_LOCK(p) \
    qy_assert(((p)->flags & QUARRY_PAGES_UNLOCKED) || qy_lock_is_mine(&(p)->lock) || qy_lock_is_frozen(&(p)->lock))
// Behind each transition; the walk goes over all pages and bins.
#define QY_PAGES_ASSERT_SOUND(p) qy_assert_walk(&(p)->pool, (p)->held_pages + QY_PAGES_BINS, qy_pages_verify(p))

_Static_assert(offsetof(qy_pages_t, shift) <= QY_CACHE_LINE, "what every call reads lies together");
_Static_assert(sizeof(qy_page_t) == 24, "as the header says");

// ---- bits (pages_run.c) -------------------------------------------------------------------------------------

QY_INLINE bool qy_bit(const qy_page_bits_t *bits, size_t i) {
    return atomic_load_explicit(&bits[i / 64], memory_order_relaxed) >> i % 64 & 1;
}
void qy_bits_set(qy_page_bits_t *bits, size_t from, size_t n, bool value);
// The first i in [from, end) whose bit is `value`, or end.
size_t qy_bits_find(const qy_page_bits_t *bits, size_t from, size_t end, bool value);
// The last i in [0, from] whose bit is set. There is one.
size_t qy_bits_find_back(const qy_page_bits_t *bits, size_t from);

// ---- runs (pages_run.c) -----------------------------------------------------------------------------------

// Pages [first, first + n) of a region are free now, with their dirty bits as they are: joined with what is free
// around them, and put into a bin.
void qy_pages_put(qy_pages_t *p, qy_pages_region_t *r, size_t first, size_t n);
// Take `n` pages at a multiple of `alignment` bytes out of a free run and mark them as used. NULL: no run is long
// enough, of those that are looked at.
qy_pages_region_t *qy_pages_take(qy_pages_t *p, size_t n, size_t alignment, bool clean, size_t *ret_first);
// The same of a region that is all free. SIZE_MAX: it is too short.
size_t qy_pages_take_of_new(qy_pages_t *p, qy_pages_region_t *r, size_t n, size_t alignment);
// Take the `n` pages behind a run in use that ends at `end`. False: they are not free.
bool qy_pages_extend(qy_pages_t *p, qy_pages_region_t *r, size_t end, size_t n);
// Pages from `first`, which is in use, to the end of its run.
size_t qy_pages_length(const qy_pages_region_t *r, size_t first);
const char *qy_pages_verify(const qy_pages_t *p);

// ---- regions (pages_region.c) -------------------------------------------------------------------------------

// A region for at least `n` pages at this alignment, and a run of so many in it, in use. With the lock, which is left
// meanwhile: the parent may take its time. NULL: refused.
qy_pages_region_t *qy_pages_grow(qy_pages_t *p, size_t n, size_t alignment, size_t *ret_first);
// `what` has base, pages, offset, chunk_bytes and the two bools. With the lock. NULL: no memory for its records.
qy_pages_region_t *qy_pages_region_add(qy_pages_t *p, qy_pages_region_t what, bool zero);
qy_pages_region_t *qy_pages_region_of(const qy_pages_t *p, const void *ptr);  // NULL: none
// Give memory back until `keep` dirty free pages are left. Returns pages. With the lock.
size_t qy_pages_purge(qy_pages_t *p, size_t keep);
// Give back regions that have no run in use, all but `spare` of them. Returns pages. With the lock.
size_t qy_pages_drop_empty(qy_pages_t *p, size_t spare);
void qy_pages_drop_all(qy_pages_t *p);

#endif
