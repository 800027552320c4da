// SPDX-License-Identifier: MIT
// tlsf.h: blocks, regions and lists of a tlsf pool. Public side: quarry/tlsf.h.
//
//   region:  [ record ][ block ][ block ] ... [ block ][ end ]
//   block:   prev | head | payload ...          the next block's prev is the last word of this payload
//
// A used block costs its head alone: `prev` lies in the payload of the block before and is that block's own as long as
// it is used; once that is free, `prev` points to its beginning, so that both neighbours are found without a search.
//
// The head is one word: | mark, 16 bits | bytes, a multiple of 16 | flags, 4 bits |. The mark is a hash of the block's
// address and the pool's secret: a word that is no head of this pool passes for one once in 65,536 times. So a head
// that was written over is seen, and so is a pointer that is no block. The head of a block that was joined with another
// stays as it was, marked as free, until the memory is used again: a second free is seen for what it is.
//
// Invariants (qy_tlsf_check walks them all): the blocks of a region fill it from record to end; no two neighbours are
// free; FLAG_PREV_FREE and `prev` tell of the block before; a free block is in the list of its class, and no other
// block is; a bit is set exactly where a list is not empty.
//
// Fresh memory. Of a chunk that came from the kernel only a part has blocks: the end mark stands behind it, and what
// follows is untouched, and so zero. When no block fits, the end mark moves on, by what is needed and a little. So no
// block's head has to say whether it is fresh, and the fast paths know nothing of it. One region at a time has such a
// rest, `open`; when another takes its place, the rest becomes a free block. A parent's or a caller's memory may hold
// anything: it is all blocks at once.
//
// Links in free blocks are looked at before they are followed: within the pool's bounds, and linked back.
#ifndef QY_POOL_TLSF_H
#define QY_POOL_TLSF_H

#include <quarry/tlsf.h>

#include "base/num.h"
#include "pool/pool.h"

#define TLSF_GRAIN 16u
#define TLSF_SL_BITS 5
#define TLSF_SL (1u << TLSF_SL_BITS)        // lists in a power of two
#define TLSF_LINEAR (TLSF_GRAIN * TLSF_SL)  // below: one list for each size
#define TLSF_LINEAR_LOG 9                   // log2 of it
#define TLSF_MAX_LOG 46                     // blocks are smaller than 2^46 bytes
#define TLSF_MAX ((size_t)1 << TLSF_MAX_LOG)
#define TLSF_FL (TLSF_MAX_LOG - TLSF_LINEAR_LOG + 1)
#define TLSF_MIN_BLOCK 32u  // prev, head, two links; the links' place is the payload's
#define TLSF_MIN_REGION 128u

#define TLSF_STEP ((size_t)16 * 1024)  // the end mark moves by so much for a new block, at the least

#define FLAG_FREE 0x1u
#define FLAG_PREV_FREE 0x2u
#define FLAG_FIRST 0x4u  // of its region
#define FLAG_END 0x8u    // not a block: the end of a region
#define FLAGS 0xFu
#define MARK_MASK 0xFFFF000000000000u

typedef struct tlsf_block {
    struct tlsf_block *prev;  // valid with FLAG_PREV_FREE
    uint64_t head;
    struct tlsf_block *next_free, *prev_free;  // valid with FLAG_FREE; ends of a list are NULL
} tlsf_block_t;

#define TLSF_PAYLOAD offsetof(tlsf_block_t, next_free)

typedef struct tlsf_region {
    struct tlsf_region *next, *prev;  // ends are NULL
    void *base;                       // as it was given, before rounding
    size_t given;                     // bytes as given
    size_t bytes;                     // from this record to the end of the end mark; behind it all is zero
    size_t grown;                     // 1: from the parent, 0: of the caller
} tlsf_region_t;

// Of the memory that the newest block may have: what is known to be zero.
typedef struct tlsf_clean {
    char *from, *to;
} tlsf_clean_t;

typedef struct tlsf {
    quarry_pool_t pool;
    uint64_t secret;
    uint64_t rows;         // bit: some list of this power of two is not empty
    uintptr_t low, high;   // every block lies within; regions that went away may leave them too wide
    tlsf_region_t *spare;  // a grown region without a block, kept for the next time, or NULL

    qy_lock_t lock;                                            // with QUARRY_TLSF_LOCK: over everything below and above
    unsigned flags;                                            // QUARRY_TLSF_*
    _Atomic uint64_t used, allocs, frees, resizes, requested;  // one writer at a time
    _Atomic size_t lent;                                       // bytes of callers' regions
    tlsf_region_t *regions;
    size_t chunk_bytes;
    tlsf_region_t *open;     // its end mark can move on, or NULL
    tlsf_block_t *end;       // that mark, or NULL
    tlsf_clean_t clean;      // what the end mark has passed,
    uint64_t clean_counted;  // in the call that found so many allocs and resizes
    qy_lock_t walk_ends;     // with QUARRY_TLSF_LOCK: a walk does not end amid a fork

    QY_ALIGNED(QY_CACHE_LINE)
    uint32_t columns[TLSF_FL];
    tlsf_block_t *lists[TLSF_FL][TLSF_SL];
} tlsf_t;

_Static_assert(
    sizeof(tlsf_region_t) % TLSF_GRAIN == 0 && sizeof(tlsf_region_t) + TLSF_PAYLOAD == QUARRY_TLSF_REGION_OVERHEAD,
    "blocks begin at multiples of 16");
_Static_assert(offsetof(tlsf_t, lock) == QY_CACHE_LINE, "what every call needs is in the first line");

// ---- heads ----------------------------------------------------------------------------------------------

QY_INLINE uint64_t tlsf_mark(const tlsf_t *t, const tlsf_block_t *b) {
    return (((uintptr_t)b ^ t->secret) * 0x9E3779B97F4A7C15u) & MARK_MASK;
}
QY_INLINE bool tlsf_is_head(const tlsf_t *t, const tlsf_block_t *b) {
    return ((b->head ^ tlsf_mark(t, b)) & MARK_MASK) == 0;
}
QY_INLINE size_t tlsf_bytes(const tlsf_block_t *b) { return b->head & ~(MARK_MASK | FLAGS); }
QY_INLINE void tlsf_set_head(const tlsf_t *t, tlsf_block_t *b, size_t bytes, unsigned flags) {
    b->head = tlsf_mark(t, b) | bytes | flags;
}
QY_INLINE void tlsf_set_bytes(tlsf_block_t *b, size_t bytes) { b->head = (b->head & (MARK_MASK | FLAGS)) | bytes; }
QY_INLINE tlsf_block_t *tlsf_at(void *p, size_t offset) { return (tlsf_block_t *)(void *)((char *)p + offset); }
QY_INLINE tlsf_block_t *tlsf_next(tlsf_block_t *b) { return tlsf_at(b, tlsf_bytes(b)); }
QY_INLINE void *tlsf_payload(tlsf_block_t *b) { return (char *)b + TLSF_PAYLOAD; }
QY_INLINE tlsf_block_t *tlsf_block_of(const void *p) {
    return (tlsf_block_t *)(void *)((char *)(uintptr_t)p - TLSF_PAYLOAD);
}
QY_INLINE size_t tlsf_room(const tlsf_block_t *b) { return tlsf_bytes(b) - QUARRY_TLSF_BLOCK_OVERHEAD; }
QY_INLINE bool tlsf_within(const tlsf_t *t, const void *b) {
    return (uintptr_t)b - t->low < t->high - t->low && ((uintptr_t)b & (TLSF_GRAIN - 1)) == 0;
}

// ---- classes ----------------------------------------------------------------------------------------------

typedef struct tlsf_class {
    unsigned row, column;
} tlsf_class_t;

// The list that a free block of `bytes` is in: 16 bytes apart up to 512, then 32 to a power of two.
QY_INLINE tlsf_class_t tlsf_class(size_t bytes) {
    if (bytes < TLSF_LINEAR) return (tlsf_class_t){0, (unsigned)(bytes / TLSF_GRAIN)};
    unsigned log = qy_log2_floor(bytes);
    return (tlsf_class_t){log - (TLSF_LINEAR_LOG - 1), (unsigned)(bytes >> (log - TLSF_SL_BITS)) & (TLSF_SL - 1)};
}

// The first list whose every block has `bytes`.
QY_INLINE tlsf_class_t tlsf_class_above(size_t bytes) {
    if (bytes >= TLSF_LINEAR) bytes += ((size_t)1 << (qy_log2_floor(bytes) - TLSF_SL_BITS)) - 1;
    return tlsf_class(bytes);
}

// ---- between the files ---------------------------------------------------------------------------------------

// tlsf.c
extern const quarry_pool_ops_t qy_tlsf_ops, qy_tlsf_locked_ops, qy_tlsf_observed_ops, qy_tlsf_observed_locked_ops;

// The block `b`, whose head is marked as free, into the list of its size, and out of it. (tlsf.c)
void qy_tlsf_enlist(tlsf_t *t, tlsf_block_t *b);
void qy_tlsf_delist(tlsf_t *t, tlsf_block_t *b);

// tlsf_region.c
// A free block of at least `bytes` from fresh memory or from a new region; NULL: there is none.
QY_COLD tlsf_block_t *qy_tlsf_grow(tlsf_t *t, size_t bytes);
// `b`, used, with `next` behind it, gets `bytes` by a move of the end mark. False: it cannot.
QY_COLD bool qy_tlsf_reach(tlsf_t *t, tlsf_block_t *b, tlsf_block_t *next, size_t bytes);
QY_COLD void qy_tlsf_region_emptied(tlsf_t *t, tlsf_block_t *first);  // the whole region is this free block
void qy_tlsf_destroy(quarry_pool_t *pool);
QY_INLINE tlsf_region_t *tlsf_region_of(tlsf_block_t *first) { return (tlsf_region_t *)(void *)first - 1; }
QY_INLINE tlsf_block_t *tlsf_region_first(tlsf_region_t *r) { return (tlsf_block_t *)(void *)(r + 1); }
QY_INLINE tlsf_block_t *tlsf_region_end(tlsf_region_t *r) { return tlsf_at(r, r->bytes - TLSF_PAYLOAD); }
// With what has no block yet.
QY_INLINE size_t tlsf_region_whole(const tlsf_region_t *r) {
    return qy_round_down((uintptr_t)r->base + r->given - (uintptr_t)r, TLSF_GRAIN);
}
QY_INLINE size_t tlsf_region_fresh(const tlsf_region_t *r) { return tlsf_region_whole(r) - r->bytes; }
// What the call that is under way knows of the block it has made.
QY_INLINE tlsf_clean_t tlsf_clean(const tlsf_t *t) {
    bool now = t->clean_counted + 1 == t->allocs + t->resizes;
    return now ? t->clean : (tlsf_clean_t){NULL, NULL};
}

// tlsf_check.c
const char *qy_tlsf_check(tlsf_t *t);
// `ptr` cannot be freed or resized: find out what it is, and end the process.
_Noreturn QY_COLD void qy_tlsf_bad_pointer(tlsf_t *t, const void *ptr);
_Noreturn QY_COLD void qy_tlsf_damaged(tlsf_t *t, const tlsf_block_t *b, const char *what);

// At the head of what changes the pool.
#define TLSF_NEEDS_LOCK(t) \
    qy_assert(!((t)->flags & QUARRY_TLSF_LOCK) || qy_lock_is_mine(&(t)->lock) || qy_lock_is_frozen(&(t)->lock))
// Behind each operation; the walk goes over all lists and blocks.
#define TLSF_ASSERT_SOUND(t) \
    qy_assert_walk(&(t)->pool, TLSF_FL *TLSF_SL + 2 * (size_t)((t)->allocs - (t)->frees), qy_tlsf_check(t))

QY_INLINE void tlsf_lock(tlsf_t *t) {
    if (t->flags & QUARRY_TLSF_LOCK) qy_lock_take(&t->lock);
}
QY_INLINE void tlsf_unlock(tlsf_t *t) {
    if (t->flags & QUARRY_TLSF_LOCK) qy_lock_drop(&t->lock);
}

#endif
