// SPDX-License-Identifier: MIT
// pool_heap.c: a heap seen as a pool. Here, because it knows both.
#include <errno.h>
#include <quarry/heap.h>
#include <quarry/malloc.h>
#include <string.h>

#include "api/dropin_own.h"
#include "base/num.h"
#include "heap/alloc.h"
#include "heap/first_class.h"
#include "heap/heaps.h"
#include "pool/pool.h"
#include "pool/trace.h"

typedef struct heap_pool {
    quarry_pool_t pool;
    quarry_heap_t *heap;  // NULL: the general heap
} heap_pool_t;

static quarry_heap_t *heap_of(quarry_pool_t *pool) { return ((heap_pool_t *)(void *)pool)->heap; }

// A drop-in that was preloaded has the heap's names, and so the heap. This library's own is another one, of whose
// blocks quarry_free knows nothing.
bool qy_heap_is_ours(void) { return QY_SAME(quarry_free, qy_own_quarry_free); }

static void *take(quarry_heap_t *heap, size_t size, size_t alignment, bool zero) {
    if (alignment > QY_TINY && size - 1 < QY_TINY) size = QY_TINY + 1;  // up to 8 bytes are aligned to 8
    if (alignment <= 16) {
        if (zero) return heap ? quarry_heap_calloc(heap, 1, size) : quarry_calloc(1, size);
        return heap ? quarry_heap_alloc(heap, size) : quarry_malloc(size);
    }
    if (qy_heap_is_ours()) {  // zeros that nobody has used stay untouched
        if (heap) return qy_first_class_alloc((qy_heap_t *)(void *)heap, alignment, size, zero);
        if (zero) return qy_aligned_calloc(alignment, size);
    }
    void *p = heap ? quarry_heap_aligned_alloc(heap, alignment, size) : quarry_aligned_alloc(alignment, size);
    return p && zero ? memset(p, 0, size) : p;
}

static void *heap_alloc(quarry_pool_t *pool, size_t size, size_t alignment, unsigned flags) {
    if (!qy_pool_sane(pool, size, alignment)) return qy_pool_refuse(pool, size, alignment);
    void *p = take(heap_of(pool), size, alignment, flags & QUARRY_POOL_ZERO);
    return p ? p : qy_pool_no_memory(pool, size);
}

static size_t heap_usable(quarry_pool_t *pool, const void *ptr) {
    (void)pool;
    return quarry_usable_size(ptr);
}

static void heap_free(quarry_pool_t *pool, void *ptr, size_t size) {
    (void)size;
    quarry_heap_t *heap = heap_of(pool);
    if (heap) quarry_heap_free(heap, ptr);
    else quarry_free(ptr);
}

static void *heap_resize(
    quarry_pool_t *pool, void *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags) {
    if (!ptr) return heap_alloc(pool, size, alignment, flags);
    if (!qy_pool_sane(pool, size, alignment)) return qy_pool_refuse(pool, size, alignment);
    quarry_heap_t *heap = heap_of(pool);
    size_t usable = heap_usable(pool, ptr), old = qy_min(old_size, usable);
    bool zero = flags & QUARRY_POOL_ZERO, fits = ((uintptr_t)ptr & (alignment - 1)) == 0;
    // Where most of it will be new and large, zeros from the kernel are worth the copy of the rest.
    bool anew = zero && size > QY_MEDIUM_MAX && size / 2 >= usable;
    char *p = anew ? take(heap, size, alignment, true) : NULL;
    if (!p) anew = false;
    if (!p && alignment <= 16) {
        size_t bytes = qy_max(size, alignment > QY_TINY ? QY_TINY + 1 : 1);  // realloc to 0 would free; else as in take
        p = heap ? quarry_heap_realloc(heap, ptr, bytes) : quarry_realloc(ptr, bytes);
        if (!p) return qy_pool_no_memory(pool, size);
    } else {
        if (!p && fits && size <= usable && size >= usable / 2) p = ptr;
        if (!p && !(p = take(heap, size, alignment, false))) return qy_pool_no_memory(pool, size);
        if (p != ptr) {
            memcpy(p, ptr, qy_min(old, size));
            heap_free(pool, ptr, old);
        }
    }
    if (zero && !anew && size > old) memset(p + old, 0, size - old);
    return p;
}

// ---- logged or recorded --------------------------------------------------------------------------------

// The recorder does not see the heap's own functions. realloc frees the old place before it is known here what the new
// one is.
static void *told_alloc(quarry_pool_t *pool, size_t size, size_t alignment, unsigned flags) {
    void *p = heap_alloc(pool, size, alignment, flags);
    if (p) qy_count(pool, QY_COUNT_ALLOC, size);
    return qy_pool_trace_alloc(pool, size, alignment, p);
}

static void told_free(quarry_pool_t *pool, void *ptr, size_t size) {
    qy_count(pool, QY_COUNT_FREE, 0);
    qy_pool_trace_free(pool, ptr);
    heap_free(pool, ptr, size);
}

static void *told_resize(
    quarry_pool_t *pool, void *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags) {
    if (!ptr) return told_alloc(pool, size, alignment, flags);
    qy_pool_trace_moving(pool);
    void *p = qy_pool_trace_moved(pool, ptr, size, heap_resize(pool, ptr, old_size, size, alignment, flags));
    if (p) qy_count(pool, QY_COUNT_RESIZE, size);
    return p;
}

// ---- looking, and life ---------------------------------------------------------------------------------

static const char *heap_check(quarry_pool_t *pool) {
    quarry_heap_t *heap = heap_of(pool);
    return heap && quarry_heap_check(heap) ? "the heap is damaged" : NULL;
}

static void heap_stats(quarry_pool_t *pool, quarry_pool_stats_t *stats) {
    quarry_heap_t *heap = heap_of(pool);
    stats->limit = 0;   // not the one that was asked for
    if (!heap) return;  // quarry_stats_read has the general heap's
    quarry_heap_stats_t s;
    quarry_heap_stats(heap, &s);
    stats->held_bytes = s.held_bytes;
    stats->used_bytes = s.live_bytes;
    stats->limit = s.limit;
}

#define OPS(prefix)                                                                                                  \
    {                                                                                                                \
        .kind = "heap",                                                                                              \
        .capabilities = QUARRY_POOL_FREES | QUARRY_POOL_SIZES | QUARRY_POOL_ANY_FREE | QUARRY_POOL_SHARED,           \
        .max_alignment = (size_t)1 << 30, .alloc = prefix##_alloc, .resize = prefix##_resize, .free = prefix##_free, \
        .usable = heap_usable, .check = heap_check, .stats = heap_stats, .destroy = qy_pool_drop                     \
    }
static const quarry_pool_ops_t heap_ops = OPS(heap), told_ops = OPS(told);

quarry_pool_t *quarry_heap_pool(struct quarry_heap *heap, const quarry_pool_options_t *options) {
    heap_pool_t *p = qy_pool_new(&heap_ops, sizeof *p, options);
    if (!p) return NULL;
    p->heap = heap;
    if (p->pool.mode & QY_MODE_COUNTED) p->pool.ops = &told_ops;
    qy_pool_ready(&p->pool);
    return &p->pool;
}
