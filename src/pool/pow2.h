// SPDX-License-Identifier: MIT
// pow2.h: regions, partitions and mapped blocks of a pow2 pool. Public side: quarry/pow2.h.
//
// A region is a piece of 2^n bytes at a multiple of 2^n. Its blocks are halves of halves of it: a block of order o (2^o
// bytes) lies at a multiple of 2^o, and its buddy is found by flipping bit o of its offset. One byte of the region's
// map for each 32 bytes says what begins there: nothing (0), or a block of some order, used or free. So what a pointer
// is is known exactly, without reading the memory it points to. Free blocks of an order hang in a list of their
// partition; the links lie in the blocks, and are checked against the map before they are followed.
//
// The byte behind that of a free block says how much of it may be dirty: the first 2^d bytes, or none (0). All bytes
// behind them are zero, and most are not there yet; the links alone may lie in clean bytes. Memory is handed out from
// the left, so what programs have used of a region is a prefix of it, however its blocks are split and joined.
//
// A region belongs to one partition for life, and so do its blocks, whoever frees them: buddies meet under one lock,
// and joining is complete. An allocation looks through all partitions before the pool grows.
//
// Mappings that were freed are kept for the next ones, as a list of ranges, up to `give_back` bytes: what costs in a
// large block is not the system call but the pages, which the kernel clears one by one at their first use.
//
// Locks, outermost first: partitions in the order of their numbers (all of them only for fork, snapshots and checks;
// else one at a time); the table of regions; the mapped blocks. The kernel and the parent are called under one lock at
// most: a partition's, to grow it or to purge its pages.
#ifndef QY_POOL_POW2_H
#define QY_POOL_POW2_H

#include <quarry/pow2.h>

#include "base/num.h"
#include "os/os.h"
#include "pool/pool.h"

#define POW2_MIN_ORDER 5u
#define POW2_MAX_ORDER 30u  // of a region
#define POW2_MIN_REGION 12u
#define POW2_ORDERS QUARRY_POW2_ORDERS
#define POW2_GONE 16u
#define POW2_KEPT 16u
// a kept range that nobody wanted for so long goes back at the next call for a large block
#define POW2_KEPT_NS 1000000000u
#define POW2_DIRTY_ORDER 16u  // free blocks of at least 64 KiB may be purged: as large as the largest page

// A byte of the map; 0: no block begins here.
#define MAP_ORDER 0x1Fu
#define MAP_USED 0x20u
#define MAP_FREE 0x40u

// The beginning of a free block.
typedef struct pow2_links {
    struct pow2_links *next, *prev;  // ends are NULL
} pow2_links_t;

typedef struct pow2_region {
    char *base;
    uint32_t order;
    uint32_t partition;
    struct pow2_region *next, *prev;  // of the partition; ends are NULL
    size_t record_bytes;              // of this record with the map
    size_t chunk_bytes;               // as they came: at least a page of the kernel
    uint8_t map[];
} pow2_region_t;

typedef struct pow2_partition {
    QY_ALIGNED(QY_CACHE_LINE)
    qy_lock_t lock;           // over all of this; single fields are also read without it
    _Atomic uint32_t orders;  // bit: the list is not empty; without the lock: a hint
    pow2_region_t *regions;
    _Atomic uint64_t takes, allocs, frees, requested, rounded, splits, joins;
    pow2_links_t *lists[POW2_ORDERS];
    _Atomic size_t region_count, region_bytes, used_bytes;
    QY_ALIGNED(QY_CACHE_LINE)
    _Atomic uint64_t contended;  // written by those who do not hold the lock
} pow2_partition_t;

// Regions by address, open addressing. Read without a lock: an entry is looked for only while the region lives (a block
// in it does), and entries of others may change under the reader without harm. Old tables stay until the end.
typedef struct pow2_entry {
    _Atomic uintptr_t key;            // base | order; 0: never used
    _Atomic(pow2_region_t *) region;  // NULL: free to be used again
} pow2_entry_t;
typedef struct pow2_table {
    struct pow2_table *older;
    size_t mask, count;  // count: keys != 0
    pow2_entry_t entries[];
} pow2_table_t;

typedef struct pow2_mapped {
    struct pow2_mapped *next;  // in the bucket
    char *base;
    size_t bytes;
} pow2_mapped_t;

// Pages of the kernel that are charged to the pool and belong to no block.
typedef struct pow2_kept {
    char *base;
    size_t bytes;
    uint64_t since_ns;
} pow2_kept_t;

typedef struct pow2 {
    quarry_pool_t pool;
    _Atomic(pow2_table_t *) table;
    _Atomic uint64_t region_orders;  // bit: a region of this order has been there
    unsigned partition_count;
    unsigned flags;  // QUARRY_POW2_*
    size_t region_order, map_order, give_back;

    qy_lock_t table_lock;   // for writers of the table
    qy_lock_t mapped_lock;  // over mapped_ and all down to kept_bytes
    pow2_mapped_t **buckets;
    size_t bucket_mask, bucket_count;
    const void *gone[POW2_GONE];  // freed last: so that a second free is called one
    unsigned gone_next, kept_count;
    pow2_kept_t kept[POW2_KEPT];  // the oldest first
    _Atomic size_t kept_bytes;
    _Atomic size_t mapped_blocks, mapped_bytes;
    _Atomic uint64_t mapped_allocs, mapped_frees, mapped_requested;

    QY_ALIGNED(QY_CACHE_LINE)
    _Atomic size_t dirty;     // bytes of free blocks that may be resident
    _Atomic size_t purge_at;  // `dirty` at which pages are given back
    _Atomic size_t empty;     // bytes of regions that are one free block
    _Atomic uint64_t steals, purged, resizes, resize_requested, in_place, by_join;

    pow2_partition_t partitions[];
} pow2_t;

_Static_assert(
    offsetof(pow2_t, give_back) == QY_CACHE_LINE, "what every call reads, and nobody writes, is the first line");
_Static_assert(sizeof(pow2_links_t) <= QUARRY_POW2_MIN_BLOCK, "links lie in the smallest block");
_Static_assert(POW2_MAX_ORDER <= MAP_ORDER, "an order fits into the map");

QY_INLINE size_t pow2_bytes(unsigned order) { return (size_t)1 << order; }
QY_INLINE unsigned pow2_order(size_t bytes) {
    return bytes <= QUARRY_POW2_MIN_BLOCK ? POW2_MIN_ORDER : qy_log2_ceil(bytes);
}
QY_INLINE size_t pow2_index(const pow2_region_t *r, const void *p) {
    return (size_t)((const char *)p - r->base) >> POW2_MIN_ORDER;
}
QY_INLINE void *pow2_block(const pow2_region_t *r, size_t index) { return r->base + (index << POW2_MIN_ORDER); }

// Of a free block: the first 2^this bytes may be dirty; 0: none. The smallest block has no second byte, and is dirty.
QY_INLINE unsigned pow2_dirt(const pow2_region_t *r, size_t index, unsigned order) {
    return order > POW2_MIN_ORDER ? r->map[index + 1] : order;
}
// What counts as dirty of it: what a purge would give back.
QY_INLINE size_t pow2_dirty_bytes(unsigned dirt) { return dirt >= POW2_DIRTY_ORDER ? pow2_bytes(dirt) : 0; }

QY_INLINE void pow2_add(_Atomic uint64_t *counter, uint64_t n) {
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}
QY_INLINE uint64_t pow2_get(const _Atomic uint64_t *counter) {
    return atomic_load_explicit(counter, memory_order_relaxed);
}

// What is free of the partition's regions, which have so many bytes. Without the lock the two are read a moment apart.
QY_INLINE size_t pow2_free_bytes(const pow2_partition_t *q, size_t region_bytes) {
    return region_bytes - qy_min(region_bytes, atomic_load_explicit(&q->used_bytes, memory_order_relaxed));
}

QY_INLINE void pow2_lock(pow2_partition_t *q) {
    if (QY_UNLIKELY(!qy_lock_try(&q->lock))) {
        pow2_add(&q->contended, 1);
        qy_lock_take(&q->lock);
    }
    qy_bump(&q->takes, 1);
}

// ---- regions (pow2_region.c) -------------------------------------------------------------------------------

pow2_region_t *qy_pow2_region_slow(const pow2_t *w, const void *p);
QY_INLINE size_t pow2_hash(uintptr_t key) { return (size_t)((key * 0x9E3779B97F4A7C15u) >> 32); }

// The region of the entry, which had `key` a moment ago; NULL: none, or the entry is another's by now. A region that
// lives keeps its entry, so the key cannot have been another's in between.
QY_INLINE pow2_region_t *pow2_region_in(const pow2_entry_t *e, uintptr_t key) {
    pow2_region_t *r = atomic_load_explicit(&e->region, memory_order_acquire);
    return QY_LIKELY(atomic_load_explicit(&e->key, memory_order_relaxed) == key) ? r : NULL;
}

// The region that `p` lies in; NULL: none. The first probe for the only size of regions there mostly is; then the rest.
QY_INLINE pow2_region_t *pow2_region_of(const pow2_t *w, const void *p) {
    const pow2_table_t *t = atomic_load_explicit(&w->table, memory_order_acquire);
    uintptr_t key = qy_round_down((uintptr_t)p, pow2_bytes((unsigned)w->region_order)) | w->region_order;
    const pow2_entry_t *e = &t->entries[pow2_hash(key) & t->mask];
    if (QY_LIKELY(atomic_load_explicit(&e->key, memory_order_acquire) == key)) {
        pow2_region_t *r = pow2_region_in(e, key);
        if (QY_LIKELY(r != NULL)) return r;
    }
    return qy_pow2_region_slow(w, p);
}

bool qy_pow2_table_init(pow2_t *w);
// A region with a free block of at least `order` for partition `q`, whose lock is held. False: refused.
QY_COLD bool qy_pow2_grow(pow2_t *w, pow2_partition_t *q, unsigned order);
// The region `r` of `q`, whose lock is held, is one free block: if more than enough is free, it is taken out of the
// pool. True: then the caller puts it back by qy_pow2_region_put after the lock is dropped.
bool qy_pow2_region_emptied(pow2_t *w, pow2_partition_t *q, pow2_region_t *r, size_t keep);
void qy_pow2_region_put(pow2_t *w, pow2_region_t *r);
// Give back pages of free blocks in all partitions. No lock is held.
QY_COLD size_t qy_pow2_purge(pow2_t *w);
void qy_pow2_regions_end(pow2_t *w);

// ---- blocks in regions (pow2_buddy.c); the partition's lock is held --------------------------------------------

// A block of `order`; NULL: none is free. *ret_dirty: bytes behind so many are zero.
void *qy_pow2_take(pow2_t *w, pow2_partition_t *q, unsigned order, size_t *ret_dirty);
// The block at `index`, of `order`, is free now. Returns whether the whole region is.
bool qy_pow2_give(pow2_t *w, pow2_partition_t *q, pow2_region_t *r, size_t index, unsigned order);
// Make the block at `index` one of `to`, a larger order, out of its free buddies. False: one is not free. *ret_index:
// where it begins; *ret_dirty: bytes behind so many are zero.
bool qy_pow2_widen(pow2_t *w, pow2_partition_t *q, pow2_region_t *r, size_t index, unsigned order, unsigned to,
    size_t *ret_index, size_t *ret_dirty);
// Make it one of `to`, a smaller order; the rest is freed.
void qy_pow2_narrow(pow2_t *w, pow2_partition_t *q, pow2_region_t *r, size_t index, unsigned order, unsigned to);
// The block at `index` enters the map as a free one and its list; or leaves both. Returns its dirt.
void qy_pow2_list_push(pow2_t *w, pow2_partition_t *q, pow2_region_t *r, size_t index, unsigned order, unsigned dirt);
unsigned qy_pow2_list_remove(pow2_t *w, pow2_partition_t *q, pow2_region_t *r, size_t index, unsigned order);

// ---- mapped blocks (pow2_mapped.c) --------------------------------------------------------------------------------

// Where blocks at this address are chained. mapped_lock is held.
QY_INLINE pow2_mapped_t **qy_pow2_bucket(const pow2_t *w, const void *base) {
    return &w->buckets[(((uintptr_t)base >> 4) * 0x9E3779B97F4A7C15u >> 32) & w->bucket_mask];
}
// fresh: pages that are zero and not there yet are worth more than used ones.
void *qy_pow2_map(pow2_t *w, size_t size, size_t alignment, bool fresh, bool *ret_zero);
// True: it was one, and is gone.
bool qy_pow2_unmap(pow2_t *w, void *ptr);
// Not a block, but it was: one of the last that were freed.
bool qy_pow2_mapped_was(pow2_t *w, const void *ptr);
// Its size; 0: not a mapped block.
size_t qy_pow2_mapped_bytes(pow2_t *w, const void *ptr);
// Its new place, or NULL if it cannot be had (then it is as it was). *ret_dirty: bytes behind so many are zero.
void *qy_pow2_remap(pow2_t *w, void *ptr, size_t size, size_t alignment, size_t *ret_dirty);
// The mapped block that `ptr` lies in, copied. Cost: a walk over all.
bool qy_pow2_mapped_find(pow2_t *w, const void *ptr, pow2_mapped_t *ret_copy);
void qy_pow2_mapped_end(pow2_t *w);

// ---- freed mappings (pow2_kept.c); the mapped blocks' lock is not held
// ------------------------------------------------

// The range is free: kept, or given back. So are those that have been kept for long, and the oldest when there are too
// many.
void qy_pow2_keep(pow2_t *w, char *base, size_t bytes);
// One that was kept, of `bytes` if there is one so large, else the largest one. False: there is none at a multiple of
// `alignment`.
bool qy_pow2_kept_take(pow2_t *w, size_t bytes, size_t alignment, qy_pool_chunk_t *ret_chunk);
// All go back. Returns their bytes.
size_t qy_pow2_kept_drop(pow2_t *w);

// ---- life and faults (pow2.c, pow2_check.c) ------------------------------------------------------------------------

extern const quarry_pool_ops_t qy_pow2_ops, qy_pow2_observed_ops;
// the rest of a zeroed structure
bool qy_pow2_start(pow2_t *w, const quarry_pow2_options_t *options, unsigned partitions);
QY_INLINE size_t pow2_object_bytes(unsigned partitions) {
    return sizeof(pow2_t) + partitions * sizeof(pow2_partition_t);
}
// Locks of a pool whose options name no number: one for each processor, or for each size of block.
unsigned qy_pow2_default_partitions(const quarry_pow2_options_t *options);
void qy_pow2_fork(quarry_pool_t *pool, int phase);

const char *qy_pow2_check(quarry_pool_t *pool);
// NULL, or what is wrong with the blocks, lists and sums of one partition, whose lock is held.
const char *qy_pow2_check_partition(const pow2_t *w, const pow2_partition_t *q);
// The same of the mapped blocks and of the ranges that are kept. mapped_lock is held.
const char *qy_pow2_check_mapped(const pow2_t *w);
// Behind each transition; the walks go over the maps of the partition's regions, and over all mapped blocks.
#define POW2_ASSERT_SOUND(w, q)                                                                                  \
    qy_assert_walk(&(w)->pool, atomic_load_explicit(&(q)->region_bytes, memory_order_relaxed) >> POW2_MIN_ORDER, \
        qy_pow2_check_partition(w, q))
#define POW2_ASSERT_MAPPED(w) qy_assert_walk(&(w)->pool, (w)->bucket_mask + (w)->bucket_count, qy_pow2_check_mapped(w))
_Noreturn QY_COLD void qy_pow2_bad_pointer(pow2_t *w, const void *ptr);
_Noreturn QY_COLD void qy_pow2_damaged(pow2_t *w, const void *block, const char *what);

#endif
