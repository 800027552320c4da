// SPDX-License-Identifier: MIT
// pow2_region.c: where regions come from and go to, how they are found, and pages that are given back.
#include <errno.h>

#include "pool/pow2.h"

// ---- the table -------------------------------------------------------------------------------------------

#define TABLE_FIRST 64

static size_t table_bytes(size_t entries) { return sizeof(pow2_table_t) + entries * sizeof(pow2_entry_t); }

bool qy_pow2_table_init(pow2_t *w) {
    pow2_table_t *t = qy_pool_meta_alloc(table_bytes(TABLE_FIRST));
    if (!t) return false;
    t->mask = TABLE_FIRST - 1;
    atomic_store_explicit(&w->table, t, memory_order_release);
    return true;
}

static pow2_region_t *lookup(const pow2_table_t *t, uintptr_t key) {
    for (size_t i = pow2_hash(key);; i++) {
        const pow2_entry_t *e = &t->entries[i & t->mask];
        uintptr_t found = atomic_load_explicit(&e->key, memory_order_acquire);
        if (!found) return NULL;
        pow2_region_t *r = found == key ? pow2_region_in(e, key) : NULL;
        if (r) return r;
    }
}

pow2_region_t *qy_pow2_region_slow(const pow2_t *w, const void *p) {
    const pow2_table_t *t = atomic_load_explicit(&w->table, memory_order_acquire);
    for (uint64_t orders = pow2_get(&w->region_orders); orders; orders &= orders - 1) {
        unsigned order = (unsigned)__builtin_ctzll(orders);
        pow2_region_t *r = lookup(t, qy_round_down((uintptr_t)p, pow2_bytes(order)) | order);
        if (r) return r;
    }
    return NULL;
}

// An entry whose region has gone is as good as one never used; it ends no search.
static void pow2_region_insert(pow2_table_t *t, uintptr_t key, pow2_region_t *r) {
    for (size_t i = pow2_hash(key);; i++) {
        pow2_entry_t *e = &t->entries[i & t->mask];
        if (atomic_load_explicit(&e->region, memory_order_relaxed)) continue;
        if (!atomic_load_explicit(&e->key, memory_order_relaxed)) t->count++;
        atomic_store_explicit(&e->key, key, memory_order_release);
        atomic_store_explicit(&e->region, r, memory_order_release);
        return;
    }
}

static uintptr_t key_of(const pow2_region_t *r) { return (uintptr_t)r->base | r->order; }

// table_lock is held. Readers may still be in the old table: it stays.
static bool make_room(pow2_t *w) {
    QY_NEEDS(&w->table_lock);
    pow2_table_t *t = atomic_load_explicit(&w->table, memory_order_relaxed);
    if (2 * (t->count + 1) <= t->mask) return true;
    size_t entries = 2 * (t->mask + 1);
    pow2_table_t *larger = qy_pool_meta_alloc(table_bytes(entries));
    if (!larger) return false;
    larger->mask = entries - 1;
    larger->older = t;
    for (size_t i = 0; i <= t->mask; i++) {
        pow2_region_t *r = atomic_load_explicit(&t->entries[i].region, memory_order_relaxed);
        if (r) pow2_region_insert(larger, key_of(r), r);
    }
    atomic_store_explicit(&w->table, larger, memory_order_release);
    return true;
}

static bool pow2_region_enter(pow2_t *w, pow2_region_t *r) {
    qy_lock_take(&w->table_lock);
    bool room = make_room(w);
    if (room) {
        pow2_region_insert(atomic_load_explicit(&w->table, memory_order_relaxed), key_of(r), r);
        atomic_fetch_or_explicit(&w->region_orders, (uint64_t)1 << r->order, memory_order_relaxed);
    }
    qy_lock_drop(&w->table_lock);
    return room;
}

static void pow2_region_leave(pow2_t *w, const pow2_region_t *r) {
    qy_lock_take(&w->table_lock);
    const pow2_table_t *t = atomic_load_explicit(&w->table, memory_order_relaxed);
    for (size_t i = pow2_hash(key_of(r));; i++) {
        pow2_entry_t *e = (pow2_entry_t *)&t->entries[i & t->mask];
        if (atomic_load_explicit(&e->region, memory_order_relaxed) != r) continue;
        atomic_store_explicit(&e->region, NULL, memory_order_release);
        break;
    }
    qy_lock_drop(&w->table_lock);
}

// ---- a region ----------------------------------------------------------------------------------------------

static pow2_region_t *new_region(pow2_t *w, unsigned order, bool *ret_zero) {
    size_t bytes = sizeof(pow2_region_t) + (pow2_bytes(order) >> POW2_MIN_ORDER);
    pow2_region_t *r = qy_pool_meta_alloc(bytes);
    qy_pool_chunk_t chunk;
    if (!r) return NULL;
    if (!qy_chunk_get(&w->pool, pow2_bytes(order), pow2_bytes(order), pow2_bytes(order), &chunk)) {
        qy_pool_meta_free(r, bytes);
        return NULL;
    }
    r->base = chunk.base;
    r->order = order;
    r->record_bytes = bytes;
    r->chunk_bytes = chunk.bytes;
    *ret_zero = chunk.zero;
    return r;
}

void qy_pow2_region_put(pow2_t *w, pow2_region_t *r) {
    qy_chunk_put(&w->pool, r->base, r->chunk_bytes);
    qy_pool_meta_free(r, r->record_bytes);
}

static void count_region(pow2_partition_t *q, const pow2_region_t *r, bool more) {
    QY_NEEDS(&q->lock);
    size_t bytes = pow2_bytes(r->order), one = 1;
    if (!more) bytes = -bytes, one = -one;
    atomic_store_explicit(
        &q->region_count, atomic_load_explicit(&q->region_count, memory_order_relaxed) + one, memory_order_relaxed);
    atomic_store_explicit(
        &q->region_bytes, atomic_load_explicit(&q->region_bytes, memory_order_relaxed) + bytes, memory_order_relaxed);
}

// Where a whole region is refused (a limit, a small parent), a smaller one is better than none.
static pow2_region_t *largest_region(pow2_t *w, unsigned least, bool *ret_zero) {
    pow2_region_t *r = NULL;
    for (unsigned order = (unsigned)w->region_order; order >= least && !r; order--) r = new_region(w, order, ret_zero);
    return r;
}

bool qy_pow2_grow(pow2_t *w, pow2_partition_t *q, unsigned order) {
    QY_NEEDS(&q->lock);
    qy_pool_must_live(&w->pool);
    pow2_add(&w->pool.info->slow_calls, 1);
    unsigned least = (unsigned)qy_max(order, qy_min(w->region_order, POW2_MIN_REGION));
    int saved = errno;
    bool zero = false;
    pow2_region_t *r = largest_region(w, least, &zero);
    // What is kept of mappings may be what is missing.
    if (!r && qy_pow2_kept_drop(w)) r = largest_region(w, least, &zero);
    if (!r) return false;
    r->partition = (uint32_t)(q - w->partitions);
    if (!pow2_region_enter(w, r)) {
        qy_pow2_region_put(w, r);
        return false;
    }
    errno = saved;  // a parent that refused the first may have set it
    r->next = q->regions;
    if (r->next) r->next->prev = r;
    q->regions = r;
    count_region(q, r, true);
    atomic_fetch_add_explicit(&w->empty, pow2_bytes(r->order), memory_order_relaxed);
    qy_pow2_list_push(w, q, r, 0, r->order, zero ? 0 : r->order);
    POW2_ASSERT_SOUND(w, q);
    return true;
}

bool qy_pow2_region_emptied(pow2_t *w, pow2_partition_t *q, pow2_region_t *r, size_t keep) {
    size_t bytes = pow2_bytes(r->order);
    QY_NEEDS(&q->lock);
    qy_assert(r->map[0] == (MAP_FREE | r->order) && r->partition == q - w->partitions);
    // Whoever brings the sum above what is kept takes its own region out of it: never more than needed.
    size_t empty = atomic_load_explicit(&w->empty, memory_order_relaxed);
    do {
        if (empty <= keep) return false;
    } while (!atomic_compare_exchange_weak_explicit(
        &w->empty, &empty, empty - bytes, memory_order_relaxed, memory_order_relaxed));
    pow2_add(&w->pool.info->slow_calls, 1);
    qy_pow2_list_remove(w, q, r, 0, r->order);
    if (r->prev) r->prev->next = r->next;
    else q->regions = r->next;
    if (r->next) r->next->prev = r->prev;
    count_region(q, r, false);
    pow2_region_leave(w, r);
    POW2_ASSERT_SOUND(w, q);
    return true;
}

// ---- giving pages back ----------------------------------------------------------------------------------------

// The links are lost with the first page: the list is made anew, in its order.
static size_t purge_order(pow2_t *w, pow2_partition_t *q, unsigned order) {
    QY_NEEDS(&q->lock);
    size_t given = 0;
    for (pow2_links_t *b = q->lists[order], *next; b; b = next) {
        next = b->next;
        pow2_region_t *r = pow2_region_of(w, b);
        size_t index = r ? pow2_index(r, b) : 0;
        if (!r || r->map[index] != (MAP_FREE | order)) qy_pow2_damaged(w, b, "a list holds a block that is not free");
        size_t dirty = pow2_dirty_bytes(r->map[index + 1]);
        if (!dirty) continue;
        pow2_links_t links = *b;
        bool gone = qy_os_purge(b, dirty);
        *b = links;  // also where it was refused halfway, perhaps
        if (!gone) continue;
        r->map[index + 1] = 0;
        given += dirty;
    }
    atomic_fetch_sub_explicit(&w->dirty, given, memory_order_relaxed);
    return given;
}

size_t qy_pow2_purge(pow2_t *w) {
    size_t given = 0;
    if (w->pool.info->parent) return 0;  // its memory may be anything
    for (unsigned i = 0; i < w->partition_count; i++) {
        pow2_partition_t *q = &w->partitions[i];
        pow2_lock(q);
        for (unsigned order = POW2_MAX_ORDER; order >= POW2_DIRTY_ORDER; order--) given += purge_order(w, q, order);
        POW2_ASSERT_SOUND(w, q);
        qy_lock_drop(&q->lock);
    }
    pow2_add(&w->purged, given);
    // Where the kernel keeps refusing (locked pages), trying again at every free would be in vain.
    size_t left = atomic_load_explicit(&w->dirty, memory_order_relaxed);
    atomic_store_explicit(
        &w->purge_at, left < w->give_back / 2 ? w->give_back : left + w->give_back, memory_order_relaxed);
    return given;
}

size_t quarry_pow2_trim(quarry_pool_t *pool) {
    pow2_t *w = (pow2_t *)pool;
    qy_pool_must_live(pool);
    size_t given = 0;
    for (unsigned i = 0; i < w->partition_count; i++) {
        pow2_partition_t *q = &w->partitions[i];
        pow2_region_t *gone = NULL;
        pow2_lock(q);
        for (pow2_region_t *r = q->regions, *next; r; r = next) {
            next = r->next;
            if (r->map[0] != (MAP_FREE | r->order) || !qy_pow2_region_emptied(w, q, r, 0)) continue;
            r->next = gone;
            gone = r;
        }
        qy_lock_drop(&q->lock);
        for (pow2_region_t *next; gone; gone = next) {
            next = gone->next;
            given += gone->chunk_bytes;
            qy_pow2_region_put(w, gone);
        }
    }
    return given + qy_pow2_kept_drop(w) + qy_pow2_purge(w);
}

void qy_pow2_regions_end(pow2_t *w) {
    for (unsigned i = 0; i < w->partition_count; i++) {
        for (pow2_region_t *r = w->partitions[i].regions, *next; r; r = next) {
            next = r->next;
            qy_pow2_region_put(w, r);
        }
    }
    for (pow2_table_t *t = atomic_load_explicit(&w->table, memory_order_relaxed), *older; t; t = older) {
        older = t->older;
        qy_pool_meta_free(t, table_bytes(t->mask + 1));
    }
}
