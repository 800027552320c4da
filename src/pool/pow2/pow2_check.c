// SPDX-License-Identifier: MIT
// pow2_check.c: the invariants of a pow2 pool, its figures, and what to say of a pointer that is no block.
#include <errno.h>

#include "pool/pow2.h"

// ---- the check; all partitions are locked ------------------------------------------------------------------------

typedef struct pow2_sums {
    size_t bytes, blocks[POW2_ORDERS];  // free
} pow2_sums_t;

static const char *pow2_check_region(const pow2_t *w, const pow2_region_t *r, pow2_sums_t *sums) {
    size_t end = pow2_bytes(r->order) >> POW2_MIN_ORDER;
    if (pow2_region_of(w, r->base) != r) return "a region is not in the table";
    for (size_t i = 0; i < end;) {
        unsigned what = r->map[i], order = what & MAP_ORDER;
        if (order < POW2_MIN_ORDER || order > r->order || (what - order != MAP_USED && what - order != MAP_FREE))
            return "the map tells of a block that cannot be";
        size_t length = pow2_bytes(order) >> POW2_MIN_ORDER;
        if (i & (length - 1)) return "a block lies where none of its size can";
        for (size_t k = i + 1 + (what & MAP_FREE && length > 1); k < i + length; k++)
            if (r->map[k]) return "a block lies within another";
        if (what & MAP_FREE) {
            if (pow2_dirt(r, i, order) > order) return "more of a free block is dirty than there is";
            if (order < r->order && r->map[i ^ length] == (MAP_FREE | order))
                return "two free buddies are not joined";
            sums->bytes += pow2_bytes(order);
            sums->blocks[order]++;
        }
        i += length;
    }
    return NULL;
}

static const char *pow2_check_list(const pow2_t *w, const pow2_partition_t *q, unsigned order, size_t expected) {
    size_t count = 0;
    const pow2_links_t *before = NULL;
    for (const pow2_links_t *b = q->lists[order]; b; before = b, b = b->next) {
        const pow2_region_t *r = pow2_region_of(w, b);
        if (!r || &w->partitions[r->partition] != q || ((uintptr_t)b & (pow2_bytes(order) - 1)))
            return "a list leads out of the pool";
        if (r->map[pow2_index(r, b)] != (MAP_FREE | order)) return "a list holds a block that is not free";
        if (b->prev != before) return "a list does not lead back";
        if (++count > expected) return "a list runs in a circle";
    }
    return count == expected ? NULL : "a free block is in no list";
}

static const char *check_partition(const pow2_t *w, const pow2_partition_t *q, size_t *ret_empty, size_t *ret_dirty) {
    pow2_sums_t sums = {0};
    size_t regions = 0;
    QY_NEEDS(&q->lock);
    for (const pow2_region_t *r = q->regions; r; r = r->next, regions++) {
        const char *wrong = pow2_check_region(w, r, &sums);
        if (wrong) return wrong;
        if (&w->partitions[r->partition] != q) return "a region is in the list of another partition";
        if (r->map[0] & MAP_FREE && (r->map[0] & MAP_ORDER) == r->order) *ret_empty += pow2_bytes(r->order);
    }
    for (unsigned order = 0; order < POW2_ORDERS; order++) {
        const char *wrong = pow2_check_list(w, q, order, sums.blocks[order]);
        if (wrong) return wrong;
        if (!(atomic_load_explicit(&q->orders, memory_order_relaxed) >> order & 1) != !q->lists[order])
            return "the bitmap of the lists is wrong";
        if (order < POW2_DIRTY_ORDER) continue;
        for (const pow2_links_t *b = q->lists[order]; b; b = b->next) {
            const pow2_region_t *r = pow2_region_of(w, b);
            *ret_dirty += pow2_dirty_bytes(pow2_dirt(r, pow2_index(r, b), order));
        }
    }
    if (sums.bytes != pow2_free_bytes(q, atomic_load_explicit(&q->region_bytes, memory_order_relaxed)))
        return "the sum of free blocks is wrong";
    return regions == atomic_load_explicit(&q->region_count, memory_order_relaxed) ? NULL
                                                                                   : "the number of regions is wrong";
}

const char *qy_pow2_check_partition(const pow2_t *w, const pow2_partition_t *q) {
    size_t empty = 0, dirty = 0;
    return check_partition(w, q, &empty, &dirty);
}

// ---- mapped_lock is held --------------------------------------------------------------------------------------------

static const char *check_kept(const pow2_t *w) {
    size_t bytes = 0;
    bool good = true;
    for (unsigned i = 0; i < w->kept_count; i++) {
        const pow2_kept_t *k = &w->kept[i];
        good &= k->bytes && ((uintptr_t)k->base | k->bytes) % qy_os_page_size() == 0 &&
                (!i || k[-1].since_ns <= k->since_ns);
        bytes += k->bytes;
    }
    good &= bytes == atomic_load_explicit(&w->kept_bytes, memory_order_relaxed) && bytes <= w->give_back;
    return good ? NULL : "the list of freed mappings is wrong";
}

const char *qy_pow2_check_mapped(const pow2_t *w) {
    size_t blocks = 0, bytes = 0;
    QY_NEEDS(&w->mapped_lock);
    for (size_t i = 0; w->buckets && i <= w->bucket_mask; i++) {
        for (const pow2_mapped_t *m = w->buckets[i]; m; m = m->next) {
            if (qy_pow2_bucket(w, m->base) != &w->buckets[i]) return "a mapped block is in the wrong bucket";
            if (++blocks > w->bucket_count) return "the table of mapped blocks holds more than there are";
            bytes += m->bytes;
        }
    }
    if (blocks != w->bucket_count || bytes != atomic_load_explicit(&w->mapped_bytes, memory_order_relaxed))
        return "the sums of mapped blocks are wrong";
    return check_kept(w);
}

// ---- all of it
// ----------------------------------------------------------------------------------------------------------

static void lock_all(pow2_t *w) {
    for (unsigned i = 0; i < w->partition_count; i++) pow2_lock(&w->partitions[i]);
}
static void unlock_all(pow2_t *w) {
    for (unsigned i = 0; i < w->partition_count; i++) qy_lock_drop(&w->partitions[i].lock);
}

const char *qy_pow2_check(quarry_pool_t *pool) {
    pow2_t *w = (pow2_t *)pool;
    const char *wrong = NULL;
    size_t empty = 0, dirty = 0;
    lock_all(w);
    for (unsigned i = 0; i < w->partition_count && !wrong; i++)
        wrong = check_partition(w, &w->partitions[i], &empty, &dirty);
    if (!wrong && empty != atomic_load_explicit(&w->empty, memory_order_relaxed))
        wrong = "the sum of empty regions is wrong";
    if (!wrong && dirty != atomic_load_explicit(&w->dirty, memory_order_relaxed))
        wrong = "the sum of dirty blocks is wrong";
    unlock_all(w);
    qy_lock_take(&w->mapped_lock);
    if (!wrong) wrong = qy_pow2_check_mapped(w);
    qy_lock_drop(&w->mapped_lock);
    return wrong;
}

// ---- figures
// -----------------------------------------------------------------------------------------------------------

void quarry_pow2_stats(quarry_pool_t *pool, quarry_pow2_stats_t *ret_stats) {
    pow2_t *w = (pow2_t *)pool;
    qy_pool_must_live(pool);
    *ret_stats = (quarry_pow2_stats_t){
        .partitions = w->partition_count,
        .mapped_blocks = atomic_load_explicit(&w->mapped_blocks, memory_order_relaxed),
        .mapped_bytes = atomic_load_explicit(&w->mapped_bytes, memory_order_relaxed),
        .kept_bytes = atomic_load_explicit(&w->kept_bytes, memory_order_relaxed),
        .dirty_bytes = atomic_load_explicit(&w->dirty, memory_order_relaxed),
        .steals = pow2_get(&w->steals),
        .purged_bytes = pow2_get(&w->purged),
        .resized_in_place = pow2_get(&w->in_place),
        .resized_by_join = pow2_get(&w->by_join),
    };
    for (unsigned i = 0; i < w->partition_count; i++) {
        const pow2_partition_t *q = &w->partitions[i];
        size_t bytes = atomic_load_explicit(&q->region_bytes, memory_order_relaxed);
        ret_stats->regions += atomic_load_explicit(&q->region_count, memory_order_relaxed);
        ret_stats->region_bytes += bytes;
        ret_stats->free_bytes += pow2_free_bytes(q, bytes);
        ret_stats->requested_bytes += pow2_get(&q->requested);
        ret_stats->rounded_bytes += pow2_get(&q->rounded);
        ret_stats->splits += pow2_get(&q->splits);
        ret_stats->joins += pow2_get(&q->joins);
    }
}

int quarry_pow2_partition_stats(quarry_pool_t *pool, unsigned index, quarry_pow2_partition_stats_t *ret_stats) {
    pow2_t *w = (pow2_t *)pool;
    qy_pool_must_live(pool);
    if (index >= w->partition_count) {
        errno = EINVAL;
        return -1;
    }
    const pow2_partition_t *q = &w->partitions[index];
    *ret_stats = (quarry_pow2_partition_stats_t){
        .takes = pow2_get(&q->takes),
        .contended = pow2_get(&q->contended),
        .allocs = pow2_get(&q->allocs),
        .frees = pow2_get(&q->frees),
        .regions = atomic_load_explicit(&q->region_count, memory_order_relaxed),
        .free_bytes = pow2_free_bytes(q, atomic_load_explicit(&q->region_bytes, memory_order_relaxed)),
    };
    return 0;
}

// ---- print
// ---------------------------------------------------------------------------------------------------------------

// The block that `p` lies in: its index, and what the map says of it. Of the blocks that begin at the places where one
// that holds `p` can, the last does. (A byte that is neither says how dirty the block before it is.)
static unsigned holder(const pow2_region_t *r, const void *p, size_t *ret_index) {
    size_t index = pow2_index(r, p);
    for (unsigned order = POW2_MIN_ORDER; order <= r->order; order++) {
        size_t at = qy_round_down(index, pow2_bytes(order) >> POW2_MIN_ORDER);
        if (!(r->map[at] & (MAP_USED | MAP_FREE))) continue;
        *ret_index = at;
        return r->map[at];
    }
    return 0;
}

static size_t describe_in(const pow2_region_t *r, const void *ptr, char *line, size_t bytes) {
    size_t index = 0;
    unsigned what = holder(r, ptr, &index), order = what & MAP_ORDER;
    size_t buddy = order < r->order ? index ^ (pow2_bytes(order) >> POW2_MIN_ORDER) : index;
    unsigned other = r->map[buddy];
    return qy_format(line, bytes, "block %p size %z %s, buddy %p %s, region %p size %z partition %u\n",
        pow2_block(r, index), pow2_bytes(order), what & MAP_USED ? "used" : "free",
        order < r->order ? pow2_block(r, buddy) : NULL,
        order == r->order             ? "none"
        : (other & MAP_ORDER) < order ? "split"
        : other & MAP_USED            ? "used"
                                      : "free",
        r->base, pow2_bytes(r->order), r->partition);
}

// Where no block is live the region may go, and with it what says which lock it has: so all are taken.
static size_t describe(pow2_t *w, const void *ptr, char *line, size_t bytes) {
    pow2_mapped_t m;
    lock_all(w);
    const pow2_region_t *r = pow2_region_of(w, ptr);
    size_t n = r ? describe_in(r, ptr, line, bytes) : 0;
    unlock_all(w);
    if (r) return n;
    if (!qy_pow2_mapped_find(w, ptr, &m)) return 0;
    return qy_format(line, bytes, "block %p size %z mapped\n", (void *)m.base, m.bytes);
}

int quarry_pow2_print_block(quarry_pool_t *pool, const void *ptr, int fd) {
    char line[256];
    qy_pool_must_live(pool);
    size_t n = describe((pow2_t *)pool, ptr, line, sizeof line);
    if (!n) {
        n = qy_format(line, sizeof line, "%p is no block of \"%s\"\n", ptr, pool->info->name);
        qy_os_write(fd, line, n);
        return -1;
    }
    return qy_os_write(fd, line, n) ? 0 : -1;
}

#define NAMED 4  // addresses of each order

typedef struct snapshot {
    size_t region_bytes, free_bytes, mapped_bytes;
    size_t counts[POW2_ORDERS];
    const void *first[POW2_ORDERS][NAMED];
} snapshot_t;

// From the maps, which stray writes of the program do not reach; and in the order of addresses.
static void gather(pow2_t *w, snapshot_t *s) {
    lock_all(w);
    for (unsigned i = 0; i < w->partition_count; i++) {
        const pow2_partition_t *q = &w->partitions[i];
        for (const pow2_region_t *r = q->regions; r; r = r->next) {
            s->region_bytes += pow2_bytes(r->order);
            for (size_t at = 0, end = pow2_bytes(r->order) >> POW2_MIN_ORDER; at < end;) {
                unsigned what = r->map[at], order = what & MAP_ORDER;
                if (what & MAP_FREE) {
                    s->free_bytes += pow2_bytes(order);
                    if (s->counts[order] < NAMED) s->first[order][s->counts[order]] = pow2_block(r, at);
                    s->counts[order]++;
                }
                at += qy_max(pow2_bytes(order) >> POW2_MIN_ORDER, 1);
            }
        }
    }
    s->mapped_bytes = atomic_load_explicit(&w->mapped_bytes, memory_order_relaxed);
    unlock_all(w);
}

size_t quarry_pow2_fragments(quarry_pool_t *pool, size_t ret_blocks[QUARRY_POW2_ORDERS]) {
    snapshot_t s = {0};
    size_t sum = 0;
    qy_pool_must_live(pool);
    gather((pow2_t *)pool, &s);
    for (unsigned order = 0; order < POW2_ORDERS; order++) sum += ret_blocks[order] = s.counts[order];
    return sum;
}

int quarry_pow2_print_free(quarry_pool_t *pool, int fd) {
    snapshot_t s = {0};
    qy_pool_must_live(pool);
    gather((pow2_t *)pool, &s);
    char text[6000];
    size_t n = qy_format(text, sizeof text, "[heap size %z KiB, mapped size %z KiB, free %z KiB, freelist {\n",
        s.region_bytes >> 10, s.mapped_bytes >> 10, s.free_bytes >> 10);
    for (unsigned order = 0; order < POW2_ORDERS; order++) {
        if (!s.counts[order]) continue;
        n += qy_format(text + n, sizeof text - n, "  %z of %z byte%S:", s.counts[order], pow2_bytes(order));
        for (size_t i = 0; i < qy_min(s.counts[order], NAMED); i++)
            n += qy_format(text + n, sizeof text - n, " %p", s.first[order][i]);
        n += qy_format(text + n, sizeof text - n, s.counts[order] > NAMED ? " ...\n" : "\n");
    }
    n += qy_format(text + n, sizeof text - n, "}]\n");
    return qy_os_write(fd, text, n) ? 0 : -1;
}

// ---- faults
// ------------------------------------------------------------------------------------------------------------------

void qy_pow2_damaged(pow2_t *w, const void *block, const char *what) {
    qy_fatal(QY_FAULT_DAMAGED_POOL, block, "%s, in %s \"%s\"", what, w->pool.ops->kind, w->pool.info->name);
}

// A partition's lock may be held: only the maps are read.
void qy_pow2_bad_pointer(pow2_t *w, const void *ptr) {
    const char *kind = w->pool.ops->kind, *name = w->pool.info->name;
    qy_pool_must_live(&w->pool);
    const pow2_region_t *r = pow2_region_of(w, ptr);
    size_t index = 0;
    pow2_mapped_t m;
    if (r) {
        unsigned what = holder(r, ptr, &index);
        size_t offset = (size_t)((const char *)ptr - (const char *)pow2_block(r, index));
        if (what & MAP_USED)
            qy_fatal(QY_FAULT_INTERIOR_FREE, ptr, "%z byte%S into a block of %z byte%S of %s \"%s\"", offset,
                pow2_bytes(what & MAP_ORDER), kind, name);
        qy_fatal(QY_FAULT_DOUBLE_FREE, ptr, "memory of %s \"%s\" that is free", kind, name);
    }
    if (qy_pow2_mapped_find(w, ptr, &m))
        qy_fatal(QY_FAULT_INTERIOR_FREE, ptr, "%z byte%S into a mapped block of %z byte%S of %s \"%s\"",
            (size_t)((const char *)ptr - m.base), m.bytes, kind, name);
    if (qy_pow2_mapped_was(w, ptr)) qy_fatal(QY_FAULT_DOUBLE_FREE, ptr, "mapped block of %s \"%s\"", kind, name);
    qy_fatal(QY_FAULT_INVALID_FREE, ptr, "not memory of %s \"%s\"", kind, name);
}
