// SPDX-License-Identifier: MIT
// pow2_buddy.c: splitting and joining the blocks of a region. The lock of its partition is held everywhere here.
#include "pool/pow2.h"

// ---- lists ----------------------------------------------------------------------------------------------

// Is `links` a free block of `order` of this partition? Known from the map, without reading the block.
QY_INLINE bool is_free(const pow2_t *w, const pow2_partition_t *q, const pow2_links_t *links, unsigned order) {
    const pow2_region_t *r = pow2_region_of(w, links);
    return r && &w->partitions[r->partition] == q && ((uintptr_t)links & (QUARRY_POW2_MIN_BLOCK - 1)) == 0 &&
           r->map[pow2_index(r, links)] == (MAP_FREE | order);
}

void qy_pow2_list_push(pow2_t *w, pow2_partition_t *q, pow2_region_t *r, size_t index, unsigned order, unsigned dirt) {
    pow2_links_t *links = pow2_block(r, index), *first = q->lists[order];
    qy_assert(((uintptr_t)links & (pow2_bytes(order) - 1)) == 0 && dirt <= order);
    QY_NEEDS(&q->lock);
    r->map[index] = (uint8_t)(MAP_FREE | order);
    if (order > POW2_MIN_ORDER) r->map[index + 1] = (uint8_t)dirt;
    links->next = first;
    links->prev = NULL;
    if (first) first->prev = links;
    else
        atomic_store_explicit(
            &q->orders, atomic_load_explicit(&q->orders, memory_order_relaxed) | 1u << order, memory_order_relaxed);
    q->lists[order] = links;
    if (QY_UNLIKELY(dirt >= POW2_DIRTY_ORDER))
        atomic_fetch_add_explicit(&w->dirty, pow2_dirty_bytes(dirt), memory_order_relaxed);
}

unsigned qy_pow2_list_remove(pow2_t *w, pow2_partition_t *q, pow2_region_t *r, size_t index, unsigned order) {
    QY_NEEDS(&q->lock);
    void *block = pow2_block(r, index);
    unsigned dirt = pow2_dirt(r, index, order);
    pow2_links_t *links = block, *next = links->next, *prev = links->prev;
    if (next && QY_UNLIKELY(!is_free(w, q, next, order) || next->prev != links))
        qy_pow2_damaged(w, block, "a free block's link was written to");
    if (prev) {
        if (QY_UNLIKELY(!is_free(w, q, prev, order) || prev->next != links))
            qy_pow2_damaged(w, block, "a free block's link was written to");
        prev->next = next;
    } else {
        if (QY_UNLIKELY(q->lists[order] != links)) qy_pow2_damaged(w, block, "a free block's link was written to");
        q->lists[order] = next;
        if (!next)
            atomic_store_explicit(&q->orders, atomic_load_explicit(&q->orders, memory_order_relaxed) & ~(1u << order),
                memory_order_relaxed);
    }
    if (next) next->prev = prev;
    if (QY_UNLIKELY(dirt >= POW2_DIRTY_ORDER))
        atomic_fetch_sub_explicit(&w->dirty, pow2_dirty_bytes(dirt), memory_order_relaxed);
    r->map[index] = 0;
    if (order > POW2_MIN_ORDER) r->map[index + 1] = 0;
    return dirt;
}

// Of blocks in use there are so many bytes more, and so many less.
QY_INLINE void buddy_count(pow2_partition_t *q, size_t more, size_t less) {
    size_t now = atomic_load_explicit(&q->used_bytes, memory_order_relaxed);
    QY_NEEDS(&q->lock);
    qy_assert(now + more >= less && now + more - less <= atomic_load_explicit(&q->region_bytes, memory_order_relaxed));
    atomic_store_explicit(&q->used_bytes, now + more - less, memory_order_relaxed);
}

// ---- splitting ------------------------------------------------------------------------------------------

// The upper halves of a block of `order` become free, until one of `to` is left. A half is dirty as a whole or not at
// all: 2^dirt bytes end where a half begins, or hold all of it.
QY_INLINE void split(
    pow2_t *w, pow2_partition_t *q, pow2_region_t *r, size_t index, unsigned order, unsigned to, unsigned dirt) {
    qy_assert(order >= to && r->partition == q - w->partitions);
    qy_bump(&q->splits, order - to);
    while (order > to) {
        order--;
        size_t upper = index + (pow2_bytes(order) >> POW2_MIN_ORDER);
        qy_pow2_list_push(w, q, r, upper, order, dirt > order ? order : 0);
    }
}

void *qy_pow2_take(pow2_t *w, pow2_partition_t *q, unsigned to, size_t *ret_dirty) {
    uint32_t orders = atomic_load_explicit(&q->orders, memory_order_relaxed) >> to << to;
    if (!orders) return NULL;
    unsigned order = (unsigned)__builtin_ctz(orders);
    void *block = q->lists[order];
    pow2_region_t *r = pow2_region_of(w, block);
    size_t index = pow2_index(r, block);
    unsigned dirt = qy_pow2_list_remove(w, q, r, index, order);
    if (QY_UNLIKELY(order == r->order)) atomic_fetch_sub_explicit(&w->empty, pow2_bytes(order), memory_order_relaxed);
    if (order > to) split(w, q, r, index, order, to, dirt);
    r->map[index] = (uint8_t)(MAP_USED | to);
    buddy_count(q, pow2_bytes(to), 0);
    POW2_ASSERT_SOUND(w, q);
    *ret_dirty = dirt ? pow2_bytes(dirt) : sizeof(pow2_links_t);  // not less than the links, which are never more
    return block;
}

// ---- joining ----------------------------------------------------------------------------------------------

// A block of `order`, whose first `dirty` bytes are, takes in its buddy at `buddy`, which is free. Returns how much of
// both is dirty: where the right half is clean, no more than before.
QY_INLINE size_t join(
    pow2_t *w, pow2_partition_t *q, pow2_region_t *r, size_t index, size_t buddy, unsigned order, size_t dirty) {
    unsigned dirt = qy_pow2_list_remove(w, q, r, buddy, order);
    if (buddy < index) return pow2_bytes(order) + dirty;
    if (dirt) return pow2_bytes(order) + pow2_bytes(dirt);
    *(pow2_links_t *)pow2_block(r, buddy) = (pow2_links_t){NULL, NULL};  // which was all that it had
    return dirty;
}

bool qy_pow2_give(pow2_t *w, pow2_partition_t *q, pow2_region_t *r, size_t index, unsigned order) {
    qy_assert(r->map[index] == (MAP_USED | order) && r->partition == q - w->partitions);
    buddy_count(q, 0, pow2_bytes(order));
    unsigned was = order;
    size_t dirty = pow2_bytes(order);
    r->map[index] = 0;
    for (; order < r->order; order++) {
        size_t buddy = index ^ (pow2_bytes(order) >> POW2_MIN_ORDER);
        if (r->map[buddy] != (MAP_FREE | order)) break;
        dirty = join(w, q, r, index, buddy, order, dirty);
        index = qy_min(index, buddy);
    }
    qy_bump(&q->joins, order - was);
    qy_pow2_list_push(w, q, r, index, order, qy_log2_ceil(dirty));
    POW2_ASSERT_SOUND(w, q);
    if (QY_LIKELY(order < r->order)) return false;
    atomic_fetch_add_explicit(&w->empty, pow2_bytes(order), memory_order_relaxed);
    return true;
}

// ---- resizing -----------------------------------------------------------------------------------------------

// First look, then act: nothing changes unless all buddies on the way are free.
bool qy_pow2_widen(pow2_t *w, pow2_partition_t *q, pow2_region_t *r, size_t index, unsigned order, unsigned to,
    size_t *ret_index, size_t *ret_dirty) {
    if (to > r->order) return false;
    size_t at = index;
    for (unsigned o = order; o < to; o++) {
        size_t half = pow2_bytes(o) >> POW2_MIN_ORDER;
        if (r->map[at ^ half] != (MAP_FREE | o)) return false;
        at &= ~half;
    }
    at = index;
    size_t dirty = pow2_bytes(order);
    r->map[index] = 0;
    for (unsigned o = order; o < to; o++) {
        size_t half = pow2_bytes(o) >> POW2_MIN_ORDER;
        dirty = join(w, q, r, at, at ^ half, o, dirty);
        at &= ~half;
    }
    qy_bump(&q->joins, to - order);
    r->map[at] = (uint8_t)(MAP_USED | to);
    buddy_count(q, pow2_bytes(to) - pow2_bytes(order), 0);
    POW2_ASSERT_SOUND(w, q);
    *ret_index = at;
    *ret_dirty = dirty;
    return true;
}

// The halves that come free cannot be joined with anything: their buddy is the block itself, or its part.
void qy_pow2_narrow(pow2_t *w, pow2_partition_t *q, pow2_region_t *r, size_t index, unsigned order, unsigned to) {
    split(w, q, r, index, order, to, order);
    r->map[index] = (uint8_t)(MAP_USED | to);
    buddy_count(q, 0, pow2_bytes(order) - pow2_bytes(to));
    POW2_ASSERT_SOUND(w, q);
}
