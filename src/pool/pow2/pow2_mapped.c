// SPDX-License-Identifier: MIT
// pow2_mapped.c: large blocks, each a mapping of its own (or a block of the parent pool), in a table by address.
//
// While a block is made, moved or ended, it is in no table: only its owner may know it then, and another's use is
// misuse, which is seen as such. So neither the kernel nor the parent is called under the lock.
#include "pool/pow2.h"

#define BUCKETS_FIRST 64

// ---- the table; mapped_lock is held ----------------------------------------------------------------------------

static bool make_buckets(pow2_t *w) {
    QY_NEEDS(&w->mapped_lock);
    size_t count = w->buckets ? 2 * (w->bucket_mask + 1) : BUCKETS_FIRST;
    pow2_mapped_t **fresh = qy_pool_meta_alloc(count * sizeof *fresh), **old = w->buckets;
    if (!fresh) return old != NULL;  // the chains become longer
    size_t old_count = old ? w->bucket_mask + 1 : 0;
    w->buckets = fresh;
    w->bucket_mask = count - 1;
    for (size_t i = 0; i < old_count; i++) {
        for (pow2_mapped_t *m = old[i], *next; m; m = next) {
            next = m->next;
            pow2_mapped_t **to = qy_pow2_bucket(w, m->base);
            m->next = *to;
            *to = m;
        }
    }
    if (old) qy_pool_meta_free(old, old_count * sizeof *old);
    return true;
}

static void mapped_count(pow2_t *w, size_t blocks, size_t bytes) {
    QY_NEEDS(&w->mapped_lock);
    w->bucket_count += blocks;
    atomic_store_explicit(&w->mapped_blocks, w->bucket_count, memory_order_relaxed);
    atomic_store_explicit(
        &w->mapped_bytes, atomic_load_explicit(&w->mapped_bytes, memory_order_relaxed) + bytes, memory_order_relaxed);
}

static bool mapped_enter(pow2_t *w, pow2_mapped_t *m) {
    qy_lock_take(&w->mapped_lock);
    bool room = (w->buckets && w->bucket_count <= w->bucket_mask) || make_buckets(w);
    if (room) {
        pow2_mapped_t **to = qy_pow2_bucket(w, m->base);
        m->next = *to;
        *to = m;
        mapped_count(w, 1, m->bytes);
        POW2_ASSERT_MAPPED(w);
    }
    qy_lock_drop(&w->mapped_lock);
    return room;
}

static pow2_mapped_t *mapped_leave(pow2_t *w, const void *base) {
    pow2_mapped_t *m = NULL;
    qy_lock_take(&w->mapped_lock);
    if (w->buckets) {
        pow2_mapped_t **at = qy_pow2_bucket(w, base);
        while (*at && (*at)->base != base) at = &(*at)->next;
        m = *at;
        if (m) {
            *at = m->next;
            mapped_count(w, -(size_t)1, -m->bytes);
        }
        POW2_ASSERT_MAPPED(w);
    }
    qy_lock_drop(&w->mapped_lock);
    return m;
}

// ---- blocks ----------------------------------------------------------------------------------------------------

static bool mapped_get_chunk(pow2_t *w, size_t size, size_t alignment, bool fresh, qy_pool_chunk_t *ret_chunk) {
    if (!fresh && qy_pow2_kept_take(w, qy_round_up(qy_max(size, 1), qy_os_page_size()), alignment, ret_chunk)) {
        if (qy_chunk_resize(&w->pool, ret_chunk, size, alignment)) return true;
        qy_chunk_put(&w->pool, ret_chunk->base, ret_chunk->bytes);
    }
    // What is kept may be what is missing.
    return qy_chunk_get(&w->pool, size, size, alignment, ret_chunk) ||
           (qy_pow2_kept_drop(w) && qy_chunk_get(&w->pool, size, size, alignment, ret_chunk));
}

void *qy_pow2_map(pow2_t *w, size_t size, size_t alignment, bool fresh, bool *ret_zero) {
    pow2_mapped_t *m = qy_pool_meta_alloc(sizeof *m);
    qy_pool_chunk_t chunk;
    if (!m) return NULL;
    if (!mapped_get_chunk(w, size, alignment, fresh, &chunk)) {
        qy_pool_meta_free(m, sizeof *m);
        return NULL;
    }
    m->base = chunk.base;
    m->bytes = chunk.bytes;
    if (!mapped_enter(w, m)) {
        qy_chunk_put(&w->pool, chunk.base, chunk.bytes);
        qy_pool_meta_free(m, sizeof *m);
        return NULL;
    }
    *ret_zero = chunk.zero;
    return chunk.base;
}

bool qy_pow2_unmap(pow2_t *w, void *ptr) {
    pow2_mapped_t *m = mapped_leave(w, ptr);
    if (!m) return false;
    qy_lock_take(&w->mapped_lock);
    w->gone[w->gone_next++ % POW2_GONE] = ptr;
    qy_lock_drop(&w->mapped_lock);
    qy_pow2_keep(w, m->base, m->bytes);
    qy_pool_meta_free(m, sizeof *m);
    return true;
}

bool qy_pow2_mapped_was(pow2_t *w, const void *ptr) {
    bool was = false;
    qy_lock_take(&w->mapped_lock);
    for (unsigned i = 0; i < POW2_GONE; i++) was |= w->gone[i] == ptr;
    for (unsigned i = 0; i < w->kept_count; i++)
        was |= (const char *)ptr >= w->kept[i].base && (const char *)ptr < w->kept[i].base + w->kept[i].bytes;
    qy_lock_drop(&w->mapped_lock);
    return was;
}

size_t qy_pow2_mapped_bytes(pow2_t *w, const void *ptr) {
    size_t bytes = 0;
    qy_lock_take(&w->mapped_lock);
    for (const pow2_mapped_t *m = w->buckets ? *qy_pow2_bucket(w, ptr) : NULL; m && !bytes; m = m->next)
        bytes = m->base == ptr ? m->bytes : 0;
    qy_lock_drop(&w->mapped_lock);
    return bytes;
}

bool qy_pow2_mapped_find(pow2_t *w, const void *ptr, pow2_mapped_t *ret_copy) {
    bool found = false;
    qy_lock_take(&w->mapped_lock);
    for (size_t i = 0; w->buckets && i <= w->bucket_mask && !found; i++) {
        for (const pow2_mapped_t *m = w->buckets[i]; m && !found; m = m->next) {
            found = (const char *)ptr >= m->base && (const char *)ptr < m->base + m->bytes;
            if (found) *ret_copy = *m;
        }
    }
    qy_lock_drop(&w->mapped_lock);
    return found;
}

// Pages that the kernel adds to a mapping are zero; a parent's may be anything.
void *qy_pow2_remap(pow2_t *w, void *ptr, size_t size, size_t alignment, size_t *ret_dirty) {
    pow2_mapped_t *m = mapped_leave(w, ptr);
    if (!m) qy_pow2_bad_pointer(w, ptr);
    qy_pool_chunk_t chunk = {m->base, m->bytes, false};
    *ret_dirty = w->pool.info->parent ? size : m->bytes;
    size_t bytes = qy_round_up(qy_max(size, 1), qy_os_page_size());
    bool done = true;
    if (!w->pool.info->parent && bytes < m->bytes && ((uintptr_t)ptr & (alignment - 1)) == 0) {
        qy_pow2_keep(w, m->base + bytes, m->bytes - bytes);
        chunk.bytes = bytes;
    } else
        done = qy_chunk_resize(&w->pool, &chunk, size, alignment) ||
               (qy_pow2_kept_drop(w) && qy_chunk_resize(&w->pool, &chunk, size, alignment));
    m->base = chunk.base;
    m->bytes = chunk.bytes;
    mapped_enter(w, m);  // there was a table, so it cannot fail
    return done ? chunk.base : NULL;
}

void qy_pow2_mapped_end(pow2_t *w) {
    qy_pow2_kept_drop(w);
    for (size_t i = 0; w->buckets && i <= w->bucket_mask; i++) {
        for (pow2_mapped_t *m = w->buckets[i], *next; m; m = next) {
            next = m->next;
            qy_chunk_put(&w->pool, m->base, m->bytes);
            qy_pool_meta_free(m, sizeof *m);
        }
    }
    if (w->buckets) qy_pool_meta_free(w->buckets, (w->bucket_mask + 1) * sizeof *w->buckets);
}
