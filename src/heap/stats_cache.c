// SPDX-License-Identifier: MIT
// stats_cache.c: see stats_cache.h.
#include "heap/stats_cache.h"

#include "heap/cache.h"
#include "heap/link.h"
#include "heap/sizeclass.h"
#include "os/os.h"
#include "pages/chunk.h"
#include "pages/map.h"

#define BUDGET 1000
#define EVERY_NS UINT64_C(50000000)
#define LOOK_NS UINT64_C(20000)  // most that it costs to count a cache, ...
#define BLOCK_NS UINT64_C(100)   // ... and each block in it
#define LIST_MOST 65536          // blocks of a list; it may run in a circle while its thread works

typedef struct count {
    size_t bytes, blocks;
    size_t of[QY_CLASS_COUNT];  // blocks
} count_t;

static void count_blocks(count_t *sum, unsigned c, size_t blocks) {
    sum->blocks += blocks;
    sum->bytes += blocks * qy_class_size[c];
    sum->of[c] += blocks;
}

static void tell(qy_thread_t *t, const count_t *sum) {
    atomic_store_explicit(&t->cached_bytes, sum->bytes, memory_order_relaxed);
    atomic_store_explicit(&t->cached_blocks, sum->blocks, memory_order_relaxed);
    for (unsigned c = 1; c < QY_CLASS_COUNT; c++)
        atomic_store_explicit(&t->cached_of[c], (uint16_t)qy_min(sum->of[c], UINT16_MAX), memory_order_relaxed);
}

static void count_own_block(qy_block_t *b, void *arg) {
    qy_chunk_t *chunk = qy_map_chunk(b);
    const qy_slab_t *s = chunk ? qy_chunk_span(chunk, b) : NULL;
    if (s && s->kind == QY_SPAN_SLAB) count_blocks(arg, s->cls, 1);
}

// Its blocks are touched, so it is done seldom.
QY_COLD void qy_stats_count_cache(qy_thread_t *t) {
    uint64_t now = qy_os_now_ns();
    if (now - t->cached_ns < qy_max(EVERY_NS, t->cached_cost * BUDGET)) return;
    count_t sum = {0};
    qy_cache_each(count_own_block, &sum);
    t->cached_ns = qy_os_now_ns();
    // A thread that did not run meanwhile would take that for the cost, and not count again for seconds.
    t->cached_cost = qy_min(t->cached_ns - now, LOOK_NS + sum.blocks * BLOCK_NS);
    tell(t, &sum);
}

QY_COLD void qy_stats_cache_emptied(qy_thread_t *t) { tell(t, &(count_t){0}); }

QY_COLD size_t qy_stats_cached(size_t *ret_blocks) {
    size_t bytes = 0, blocks = 0;
    for (qy_thread_t *t = qy_thread_first(); t; t = t->all_next) {
        bytes += atomic_load_explicit(&t->cached_bytes, memory_order_relaxed);
        blocks += atomic_load_explicit(&t->cached_blocks, memory_order_relaxed);
    }
    *ret_blocks = blocks;
    return bytes;
}

QY_COLD void qy_stats_cached_of(void (*add)(void *arg, unsigned c, size_t blocks), void *arg) {
    for (qy_thread_t *t = qy_thread_first(); t; t = t->all_next) {
        if (!atomic_load_explicit(&t->cached_blocks, memory_order_relaxed)) continue;
        for (unsigned c = 1; c < QY_CLASS_COUNT; c++) {
            size_t blocks = atomic_load_explicit(&t->cached_of[c], memory_order_relaxed);
            if (blocks) add(arg, c, blocks);
        }
    }
}

// ---- of those who sleep -----------------------------------------------------------------------------------
// What is read here belongs to another thread, which may be writing to it.

// Changes with nearly every block that the thread takes or gives.
QY_COLD QY_UNSANITIZED static uint32_t state_of(const qy_thread_t *t, const qy_heap_t *h) {
    uint64_t state = t->pend_bytes;
    for (unsigned w = 0; w < QY_CLASS_COUNT / 64; w++) {
        for (uint64_t used = h->used[w]; used; used &= used - 1) {
            unsigned c = w * 64 + (unsigned)__builtin_ctzll(used);
            uintptr_t lists = (uintptr_t)t->cache.head[c] + 3 * (uintptr_t)t->prev[c];
            state = (state + (lists >> 4) + t->cache.room[c]) * UINT64_C(0x9E3779B97F4A7C15);
        }
    }
    return (uint32_t)(state >> 32);
}

// [lock: pages] While that is held no chunk leaves the map and is unmapped, and no unit changes its slab.
QY_UNSANITIZED static bool may_be_read(const qy_heap_t *h, unsigned c, const qy_block_t *b) {
    if ((uintptr_t)b % QY_ALIGN_MIN) return false;
    qy_chunk_t *chunk = qy_map_chunk(b);
    qy_slab_t *s = chunk ? qy_chunk_span(chunk, b) : NULL;
    return s && s->kind == QY_SPAN_SLAB && s->cls == c && atomic_load_explicit(&s->heap, memory_order_relaxed) == h;
}

QY_UNSANITIZED static void count_list(const qy_heap_t *h, unsigned c, const qy_block_t *b, count_t *sum) {
    for (unsigned n = 0; b && b != &qy_link_end && n < LIST_MOST && may_be_read(h, c, b); n++) {
        const qy_block_t *next;
        if (!qy_link_try(b, &next)) break;
        count_blocks(sum, c, 1);
        b = next;
    }
}

QY_COLD QY_UNSANITIZED static void count_for(qy_thread_t *t, const qy_heap_t *h) {
    count_t sum = {0};
    for (unsigned w = 0; w < QY_CLASS_COUNT / 64; w++) {
        for (uint64_t used = h->used[w]; used; used &= used - 1) {
            unsigned c = w * 64 + (unsigned)__builtin_ctzll(used);
            count_list(h, c, t->cache.head[c], &sum);
            count_list(h, c, t->prev[c], &sum);
        }
    }
    for (unsigned i = 0; t->pend_bytes && i < QY_PEND_COUNT; i++) {
        const qy_slab_t *s = t->pend[i].slab;
        if (s) count_blocks(&sum, s->cls, t->pend[i].count);
    }
    tell(t, &sum);
}

QY_COLD QY_UNSANITIZED void qy_stats_count_sleepers(void) {
    for (qy_thread_t *t = qy_thread_first(); t; t = t->all_next) {
        const qy_heap_t *h = t->heap;
        if (!h) continue;
        uint32_t state = state_of(t, h);
        if (state != t->seen) {
            t->seen = state;
            t->counted = false;
        } else if (!t->counted && qy_lock_try(qy_units_lock())) {
            count_for(t, h);
            qy_lock_drop(qy_units_lock());
            t->counted = true;
        }
    }
}
