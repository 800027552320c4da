// SPDX-License-Identifier: MIT
// fifo.h: the FIFO behind <quarry/fifo.h>: pages with counts of live blocks.
//
//   page (aligned to its size, so that an address tells its page)
//   | colour | head | blocks ................. | never used ... |
//                   start                      pos              end
//
// The life of a page, and what its two counts mean (a = blocks allocated, o, r = freed by the owner, by others):
//
//              spare    current         left                   (frozen: the pool is being destroyed)
//   local      0        OPEN - o        a - o + LEFT           a - o + LEFT + FROZEN
//   remote     ENDED    r               r + LEFT               r + LEFT + FROZEN      (| ENDED)
//
// The page is empty when local == remote; then whoever found it so ends it. The protocol:
//
//   owner's free    read remote; write local - 1;  equal? end the page
//   other's free    read remote, then local; compare-and-swap remote -> remote + 1, with ENDED if it is then
//                   equal to the local that was read: end the page
//   leave, freeze   (owner) write local with the bias; fetch-add the bias to remote; equal and not ENDED? end it
//
//  - Nobody touches a page after his own free of it unless he ends it: it may be gone. Hence both read
//    before they write.
//  - At most one ends it: if the owner does, it has read the last remote free, so all others read `local`
//    before the owner's last write, which was larger. If another does, it has read the owner's last write, so that
//    the owner read `remote` before, which was smaller.
//  - It can happen that nobody does, if the owner and another free the last two blocks at the same moment. The
//    owner finds such pages when it turns to a new page (qy_fifo_turn looks at a few each time): equal and not
//    ENDED means that nobody will touch the page any more.
//  - The bias changes `remote` by a read-modify-write, so the compare-and-swap of a thread that has read the counts
//    before fails, and it reads again. So leaving and freezing are exact: from the freeze on no end is missed.
// tests/pool/models/fifo_page.pml checks all this, with a delayed store of the owner.
//
// Lock: `lock` covers the list of pages that were left, the spares and the totals. The current page is the owner's
// alone. The lock is not held while chunks are taken or given back.
#ifndef QY_POOL_FIFO_H
#define QY_POOL_FIFO_H

#include <quarry/fifo.h>

#include "pool/pool.h"

#define QY_FIFO_OPEN ((uint64_t)1 << 62)
#define QY_FIFO_ENDED ((uint64_t)1 << 61)
#define QY_FIFO_FROZEN ((uint64_t)1 << 41)
#define QY_FIFO_LEFT ((uint64_t)1 << 40)
#define QY_FIFO_COUNT (QY_FIFO_LEFT - 1)

#define QY_FIFO_PAGE_MIN ((size_t)64 * 1024)
#define QY_FIFO_PAGE_MAX ((size_t)1 << 30)
#define QY_FIFO_ALIGN_MAX ((size_t)4096)
#define QY_FIFO_BIG_KEPT ((size_t)1024 * 1024)  // the largest big page that is kept as a spare
#define QY_FIFO_LOOKED_AT 4                     // pages looked at for missed ends, each turn
#define QY_FIFO_CLEAN_AHEAD 1024                // bytes cleaned beyond the block that needs it

// The head of a page. Who may write: local, key, and all of it while current or spare: the owner. Links: the lock.
typedef struct qy_fifo_page {
    quarry_fifo_page_t hot;
    struct qy_fifo *pool;
    qy_list_t link;      // pages left, or spares, or waiting
    char *end;           // of its blocks
    char *dirty;         // from here on all is zero
    uint64_t blocks;     // allocated in it; set when it is left
    size_t used;         // bytes given out; set when it is left
    void *chunk;         // what the parent gave
    size_t chunk_bytes;  // a page for one big block may be of any size
    bool big;
} qy_fifo_page_t;

typedef struct qy_fifo {
    quarry_fifo_t hot;
    // ---- the owner's ----
    char *pos, *end;          // stand in for hot.pos and hot.limit while pool.mode != 0 or the pool is dying
    char *dirty;              // of the current page: from here on all is zero
    qy_fifo_page_t *current;  // NULL once the pool is being destroyed
    uintptr_t owner;          // token of the owning thread; written by it and by adopt
    size_t page_bytes;
    unsigned spare_max;
    bool dying, shared_parent, finishing;
    // ---- under the lock ----
    QY_ALIGNED(QY_CACHE_LINE)
    qy_lock_t lock;
    qy_lock_t life;     // around frees while the pool is observed and dying; outside `lock`
    qy_list_t pages;    // left, with live blocks (or an end that was missed); first: looked at next
    qy_list_t spares;   // empty pages of page_bytes
    qy_list_t waiting;  // empty pages for the owner to give back
    qy_fifo_page_t *big_spare;
    size_t npages, nspares;
    unsigned busy;                               // threads that give pages back just now, without the lock
    _Atomic size_t used_left;                    // bytes given out in `pages`
    _Atomic uint64_t blocks_left, blocks_ended;  // blocks ever allocated in pages left; those of ended pages
    _Atomic uint64_t bytes_left;                 // bytes ever given out in pages left
} qy_fifo_t;

_Static_assert(sizeof(quarry_fifo_t) == QY_CACHE_LINE, "allocation touches one cache line of the pool");
_Static_assert(offsetof(qy_fifo_page_t, pool) < QY_CACHE_LINE, "free touches one cache line of the page");
_Static_assert(sizeof(qy_fifo_page_t) <= 128, "heads of pages are 128 bytes apart (quarry_fifo_page_of)");

static inline char *qy_fifo_start(qy_fifo_page_t *page) { return (char *)(page + 1); }
static inline uintptr_t qy_fifo_key(const qy_fifo_t *f) { return f->owner ^ (uintptr_t)f; }

// Where the next block goes: hidden from the fast path while calls are to take the slow path.
static inline bool qy_fifo_hidden(const qy_fifo_t *f) { return f->hot.pool.mode != 0 || f->dying; }
static inline char *qy_fifo_pos(const qy_fifo_t *f) { return qy_fifo_hidden(f) ? f->pos : f->hot.pos; }
static inline void qy_fifo_set_pos(qy_fifo_t *f, char *pos) {
    __atomic_store_n(&f->pos, pos, __ATOMIC_RELAXED);
    if (!qy_fifo_hidden(f)) __atomic_store_n(&f->hot.pos, pos, __ATOMIC_RELAXED);
}

// Blocks freed of a page, of its two counts.
static inline uint64_t qy_fifo_freed_of(const qy_fifo_page_t *page, uint64_t allocated, bool current) {
    uint64_t remote = __atomic_load_n(&page->hot.remote, __ATOMIC_RELAXED),
             local = __atomic_load_n(&page->hot.local, __ATOMIC_RELAXED);
    if (current) return QY_FIFO_OPEN - local + remote;
    return allocated - (local & QY_FIFO_COUNT) + (remote & QY_FIFO_COUNT);
}

// fifo.c: the pool's last page has gone; give back what is left of it.
void qy_fifo_finish(qy_fifo_t *f);

// ---- fifo_page.c -----------------------------------------------------------------------------------

// The first page. False: no memory.
bool qy_fifo_first_page(qy_fifo_t *f);
// For the owner: room for `size` bytes at a multiple of `alignment`. True: in the current page, which may be a new
// one, from qy_fifo_pos on; or *ret_block is a block of a page of its own, zero if the flags ask for it. False: no
// memory; nothing has changed.
bool qy_fifo_turn(qy_fifo_t *f, size_t size, size_t alignment, unsigned flags, char **ret_block);
// One block less. By the owner, and by any other thread.
void qy_fifo_free_own(qy_fifo_t *f, qy_fifo_page_t *page);
void qy_fifo_free_remote(qy_fifo_t *f, qy_fifo_page_t *page);
// The pool is being destroyed: freeze all pages; end and give back the empty ones. True: none is left, the caller
// finishes the pool. False: blocks are left, and who frees the last one finishes it, perhaps already.
bool qy_fifo_freeze(qy_fifo_t *f);
// Everything back to the parent, whatever lies in it. For pools that are finished.
void qy_fifo_put_all(qy_fifo_t *f);
// Spares, and pages that wait for the owner.
void qy_fifo_put_spares(qy_fifo_t *f);

// ---- fifo_check.c ----------------------------------------------------------------------------------

// NULL, or what is wrong. With the lock: the lists and totals. For the owner, with the lock: also the current page.
const char *qy_fifo_check_lists(qy_fifo_t *f);
const char *qy_fifo_check_owned(qy_fifo_t *f);
// All that can be seen, and what is promised to be zero. For the owner.
const char *qy_fifo_check(quarry_pool_t *pool);

#endif
