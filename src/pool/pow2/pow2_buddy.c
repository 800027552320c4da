// SPDX-License-Identifier: MIT
// pow2_buddy.c: splitting and joining the blocks of a region. The lock of its partition is held everywhere here.
#include "pool/pow2.h"

// ---- lists ----------------------------------------------------------------------------------------------

// Is `links` a free block of `order` of this partition? Known from the map, without reading the block.
QY_INLINE bool is_free(const pow2_t *w, const pow2_partition_t *q, const pow2_links_t *links, unsigned order) {
    const pow2_region_t *r = pow2_region_of(w, links);
    return r && &w->partitions[r->partition] == q && ((uintptr_t)links & (QUARRY_POW2_MIN_BLOCK - 1)) == 0 &&
           (r->map[pow2_index(r, links)] & ~MAP_FRESH) == (MAP_FREE | order);
}

void qy_pow2_list_push(pow2_t *w, pow2_partition_t *q, void *block, unsigned order, bool fresh) {
    qy_assert(((uintptr_t)block & (pow2_bytes(order) - 1)) == 0);
    QY_NEEDS(&q->lock);
    pow2_links_t *links = block, *first = q->lists[order];
    links->next = first;
    links->prev = NULL;
    if (first) first->prev = links;
    else
        atomic_store_explicit(
            &q->orders, atomic_load_explicit(&q->orders, memory_order_relaxed) | 1u << order, memory_order_relaxed);
    q->lists[order] = links;
    if (order >= POW2_DIRTY_ORDER && !fresh)
        atomic_fetch_add_explicit(&w->dirty, pow2_bytes(order), memory_order_relaxed);
}

void qy_pow2_list_remove(pow2_t *w, pow2_partition_t *q, void *block, unsigned order, bool fresh) {
    QY_NEEDS(&q->lock);
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
    if (order >= POW2_DIRTY_ORDER && !fresh)
        atomic_fetch_sub_explicit(&w->dirty, pow2_bytes(order), memory_order_relaxed);
}

QY_INLINE void count_free(pow2_partition_t *q, size_t more, size_t less) {
    size_t now = atomic_load_explicit(&q->free_bytes, memory_order_relaxed);
    QY_NEEDS(&q->lock);
    qy_assert(now + more >= less && now + more - less <= atomic_load_explicit(&q->region_bytes, memory_order_relaxed));
    atomic_store_explicit(&q->free_bytes, now + more - less, memory_order_relaxed);
}

// ---- splitting ------------------------------------------------------------------------------------------

// The upper halves of a block of `order` become free, until one of `to` is left.
QY_INLINE void split(
    pow2_t *w, pow2_partition_t *q, pow2_region_t *r, size_t index, unsigned order, unsigned to, bool fresh) {
    qy_assert(order >= to && r->partition == q - w->partitions);
    qy_bump(&q->splits, order - to);
    while (order > to) {
        order--;
        size_t upper = index + (pow2_bytes(order) >> POW2_MIN_ORDER);
        r->map[upper] = (uint8_t)(MAP_FREE | order | (fresh ? MAP_FRESH : 0));
        qy_pow2_list_push(w, q, pow2_block(r, upper), order, fresh);
    }
}

void *qy_pow2_take(pow2_t *w, pow2_partition_t *q, unsigned to, bool *ret_fresh) {
    uint32_t orders = atomic_load_explicit(&q->orders, memory_order_relaxed) >> to << to;
    if (!orders) return NULL;
    unsigned order = (unsigned)__builtin_ctz(orders);
    void *block = q->lists[order];
    pow2_region_t *r = pow2_region_of(w, block);
    size_t index = pow2_index(r, block);
    bool fresh = r->map[index] & MAP_FRESH;
    qy_pow2_list_remove(w, q, block, order, fresh);
    if (QY_UNLIKELY(order == r->order)) atomic_fetch_sub_explicit(&w->empty, pow2_bytes(order), memory_order_relaxed);
    if (order > to) split(w, q, r, index, order, to, fresh);
    r->map[index] = (uint8_t)(MAP_USED | to);
    count_free(q, 0, pow2_bytes(to));
    POW2_ASSERT_SOUND(w, q);
    *ret_fresh = fresh;
    return block;
}

// ---- joining ----------------------------------------------------------------------------------------------

bool qy_pow2_give(pow2_t *w, pow2_partition_t *q, pow2_region_t *r, size_t index, unsigned order) {
    qy_assert(r->map[index] == (MAP_USED | order) && r->partition == q - w->partitions);
    count_free(q, pow2_bytes(order), 0);
    unsigned was = order;
    for (; order < r->order; order++) {
        size_t buddy = index ^ (pow2_bytes(order) >> POW2_MIN_ORDER);
        unsigned what = r->map[buddy];
        if ((what & ~MAP_FRESH) != (MAP_FREE | order)) break;
        qy_pow2_list_remove(w, q, pow2_block(r, buddy), order, what & MAP_FRESH);
        r->map[qy_max(index, buddy)] = 0;
        index = qy_min(index, buddy);
    }
    qy_bump(&q->joins, order - was);
    r->map[index] = (uint8_t)(MAP_FREE | order);
    qy_pow2_list_push(w, q, pow2_block(r, index), order, false);
    POW2_ASSERT_SOUND(w, q);
    if (QY_LIKELY(order < r->order)) return false;
    atomic_fetch_add_explicit(&w->empty, pow2_bytes(order), memory_order_relaxed);
    return true;
}

// ---- resizing -----------------------------------------------------------------------------------------------

// First look, then act: nothing changes unless all buddies on the way are free.
bool qy_pow2_widen(
    pow2_t *w, pow2_partition_t *q, pow2_region_t *r, size_t index, unsigned order, unsigned to, size_t *ret_index) {
    if (to > r->order) return false;
    size_t at = index;
    for (unsigned o = order; o < to; o++) {
        size_t half = pow2_bytes(o) >> POW2_MIN_ORDER;
        if ((r->map[at ^ half] & ~MAP_FRESH) != (MAP_FREE | o)) return false;
        at &= ~half;
    }
    at = index;
    for (unsigned o = order; o < to; o++) {
        size_t half = pow2_bytes(o) >> POW2_MIN_ORDER, buddy = at ^ half;
        qy_pow2_list_remove(w, q, pow2_block(r, buddy), o, r->map[buddy] & MAP_FRESH);
        r->map[at | half] = 0;
        at &= ~half;
    }
    qy_bump(&q->joins, to - order);
    r->map[at] = (uint8_t)(MAP_USED | to);
    count_free(q, 0, pow2_bytes(to) - pow2_bytes(order));
    POW2_ASSERT_SOUND(w, q);
    *ret_index = at;
    return true;
}

// The halves that come free cannot be joined with anything: their buddy is the block itself, or its part.
void qy_pow2_narrow(pow2_t *w, pow2_partition_t *q, pow2_region_t *r, size_t index, unsigned order, unsigned to) {
    split(w, q, r, index, order, to, false);
    r->map[index] = (uint8_t)(MAP_USED | to);
    count_free(q, pow2_bytes(order) - pow2_bytes(to), 0);
    POW2_ASSERT_SOUND(w, q);
}
