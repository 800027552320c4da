// SPDX-License-Identifier: MIT
// pow2_kept.c: freed mappings that are kept for the next large blocks.
//
// A range is a piece of one mapping, so that it can grow by the kernel's tables: neighbours are not joined, since they
// may be pieces of two. There are few, and a large block costs much more than a look at all of them.
#include "pool/pow2.h"

// ---- the list; mapped_lock is held ------------------------------------------------------------------------------

static void kept_count(pow2_t *w, size_t bytes) {
    atomic_store_explicit(
        &w->kept_bytes, atomic_load_explicit(&w->kept_bytes, memory_order_relaxed) + bytes, memory_order_relaxed);
}

static pow2_kept_t kept_take_out(pow2_t *w, unsigned at) {
    QY_NEEDS(&w->mapped_lock);
    qy_assert(at < w->kept_count);
    pow2_kept_t range = w->kept[at];
    kept_count(w, -range.bytes);
    w->kept_count--;
    for (; at < w->kept_count; at++) w->kept[at] = w->kept[at + 1];
    return range;
}

// What is put back when the lock is dropped.
typedef struct going {
    pow2_kept_t ranges[POW2_KEPT];
    unsigned count;
} going_t;

static void take_out_old(pow2_t *w, uint64_t now, going_t *going) {
    while (w->kept_count && now - w->kept[0].since_ns > POW2_KEPT_NS)
        going->ranges[going->count++] = kept_take_out(w, 0);
}

// ---- without the lock -----------------------------------------------------------------------------------------------

static size_t put_back(pow2_t *w, const going_t *going) {
    size_t bytes = 0;
    for (unsigned i = 0; i < going->count; i++) {
        qy_chunk_put(&w->pool, going->ranges[i].base, going->ranges[i].bytes);
        bytes += going->ranges[i].bytes;
    }
    return bytes;
}

void qy_pow2_keep(pow2_t *w, char *base, size_t bytes) {
    // A parent takes back what it gave, and no parts of it.
    if (w->pool.info->parent || bytes > w->give_back) {
        qy_chunk_put(&w->pool, base, bytes);
        return;
    }
    going_t going = {.count = 0};
    qy_lock_take(&w->mapped_lock);
    uint64_t now = qy_os_now_coarse_ns();  // with the lock: they stand in the order of time
    take_out_old(w, now, &going);
    while (w->kept_count && (w->kept_count == POW2_KEPT ||
                                atomic_load_explicit(&w->kept_bytes, memory_order_relaxed) > w->give_back - bytes))
        going.ranges[going.count++] = kept_take_out(w, 0);
    w->kept[w->kept_count++] = (pow2_kept_t){base, bytes, now};
    kept_count(w, bytes);
    POW2_ASSERT_MAPPED(w);
    qy_lock_drop(&w->mapped_lock);
    put_back(w, &going);
}

bool qy_pow2_kept_take(pow2_t *w, size_t bytes, size_t alignment, qy_pool_chunk_t *ret_chunk) {
    if (!atomic_load_explicit(&w->kept_bytes, memory_order_relaxed)) return false;
    going_t going = {.count = 0};
    pow2_kept_t *best = NULL;
    qy_lock_take(&w->mapped_lock);
    take_out_old(w, qy_os_now_coarse_ns(), &going);
    for (pow2_kept_t *k = w->kept; k < w->kept + w->kept_count; k++) {
        if ((uintptr_t)k->base & (alignment - 1)) continue;
        // The smallest of those that are large enough, or the largest.
        if (!best || (best->bytes < bytes ? k->bytes > best->bytes : k->bytes >= bytes && k->bytes < best->bytes))
            best = k;
    }
    if (best && best->bytes > bytes) {
        *ret_chunk = (qy_pool_chunk_t){best->base, bytes, false};
        best->base += bytes;
        best->bytes -= bytes;
        kept_count(w, -bytes);
    } else if (best) {
        pow2_kept_t range = kept_take_out(w, (unsigned)(best - w->kept));
        *ret_chunk = (qy_pool_chunk_t){range.base, range.bytes, false};
    }
    POW2_ASSERT_MAPPED(w);
    qy_lock_drop(&w->mapped_lock);
    put_back(w, &going);
    return best != NULL;
}

size_t qy_pow2_kept_drop(pow2_t *w) {
    going_t going = {.count = 0};
    qy_lock_take(&w->mapped_lock);
    while (w->kept_count) going.ranges[going.count++] = kept_take_out(w, 0);
    qy_lock_drop(&w->mapped_lock);
    return put_back(w, &going);
}
