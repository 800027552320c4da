// SPDX-License-Identifier: MIT
// fifo.c: the operations of a FIFO. The life of its pages is in fifo_page.c.
#include <errno.h>
#include <string.h>

#include "base/num.h"
#include "os/os.h"
#include "pool/fifo.h"
#include "pool/observe.h"
#include "pool/trace.h"

static const quarry_pool_ops_t fifo_ops;

static qy_fifo_t *fifo_of(quarry_pool_t *pool) { return (qy_fifo_t *)pool; }
static bool fifo_observed(const qy_fifo_t *f) { return f->hot.pool.mode & QY_MODE_OBSERVED; }

// What allocates or reorganises is for the owner; the fast path does not ask, so this is seen at the next page at the
// latest.
static void fifo_must_own(const qy_fifo_t *f) {
    qy_pool_must_live(&f->hot.pool);
    if (QY_UNLIKELY(f->owner != qy_os_thread_token()))
        qy_fatal(QY_FAULT_WRONG_THREAD, f, "fifo \"%s\" belongs to another thread (quarry_fifo_adopt changes that)",
            f->hot.pool.info->name);
}

// ---- allocation ----------------------------------------------------------------------------------------

void quarry_fifo_clean(quarry_fifo_t *fifo, char *block, char *next) {
    qy_fifo_t *f = (qy_fifo_t *)fifo;
    char *from = fifo->clean > block ? fifo->clean : block;
    char *to = f->end - next > QY_FIFO_CLEAN_AHEAD ? next + QY_FIFO_CLEAN_AHEAD : f->end;
    if (to < f->dirty) {
        memset(from, 0, (size_t)(to - from));
        fifo->clean = to;
    } else {
        if (f->dirty > from) memset(from, 0, (size_t)(f->dirty - from));
        fifo->clean = f->end;
    }
}

// The block at p is now [p, next).
static char *fifo_place(qy_fifo_t *f, char *p, char *next, unsigned flags) {
    qy_fifo_set_pos(f, next);
    __atomic_store_n(&f->hot.blocks, f->hot.blocks + 1, __ATOMIC_RELAXED);
    if ((flags & QUARRY_POOL_ZERO) && next > f->hot.clean) quarry_fifo_clean(&f->hot, p, next);
    return p;
}

// The request is sane.
static void *fifo_take(qy_fifo_t *f, size_t size, size_t alignment, unsigned flags) {
    if (size > QUARRY_POOL_MAX - 7) return NULL;
    size = qy_round_up(qy_max(size, 1), 8);
    alignment = qy_max(alignment, 8);
    for (int turns = 0;; turns++) {
        char *pos = qy_fifo_pos(f), *p = qy_ptr_up(pos, alignment);
        if (p <= f->end && size <= (size_t)(f->end - p)) return fifo_place(f, p, p + size, flags);
        qy_assert(turns == 0);
        char *big;
        if (!qy_fifo_turn(f, size, alignment, flags, &big)) return NULL;
        if (big) return big;
    }
}

static QY_COLD void *fifo_counted_alloc(qy_fifo_t *f, size_t size, size_t alignment, unsigned flags) {
    quarry_pool_t *pool = &f->hot.pool;
    qy_bump(&pool->info->slow_calls, 1);
    void *p = fifo_take(f, size, alignment, flags);
    if (!p) return qy_pool_no_memory(pool, size);
    qy_count(pool, QY_COUNT_ALLOC, size);
    return qy_pool_trace_alloc(pool, size, alignment, p);
}

void *quarry_fifo_alloc_slow(quarry_pool_t *pool, size_t size, size_t alignment, unsigned flags) {
    qy_fifo_t *f = fifo_of(pool);
    fifo_must_own(f);
    if (!qy_pool_sane(pool, size, alignment)) return qy_pool_refuse(pool, size, alignment);
    if (QY_UNLIKELY(fifo_observed(f))) return qy_observe_alloc(pool, &QY_STACK_CALLER(), 0, size, alignment, flags);
    if (QY_UNLIKELY(pool->mode & QY_MODE_COUNTED)) return fifo_counted_alloc(f, size, alignment, flags);
    qy_bump(&pool->info->slow_calls, 1);
    void *p = fifo_take(f, size, alignment, flags);
    return p ? p : qy_pool_no_memory(pool, size);
}

static void *fifo_alloc(quarry_pool_t *pool, size_t size, size_t alignment, unsigned flags) {
    return quarry_fifo_alloc(pool, size, alignment, flags);
}

static void *fifo_raw_alloc(quarry_pool_t *pool, size_t size, size_t alignment) {
    return fifo_take(fifo_of(pool), size, alignment, 0);
}

// ---- free ----------------------------------------------------------------------------------------------

static void fifo_free_block(qy_fifo_t *f, void *ptr) {
    qy_fifo_page_t *page = (qy_fifo_page_t *)quarry_fifo_page_of(f->hot.mask, ptr);
    if (QY_UNLIKELY(page->pool != f)) qy_fatal(QY_FAULT_WRONG_POOL, ptr, "not of fifo \"%s\"", f->hot.pool.info->name);
    // A frozen page has no owner: its key is 0.
    bool own = __atomic_load_n(&page->hot.key, __ATOMIC_RELAXED) == (qy_os_thread_token() ^ (uintptr_t)f);
    if (own) qy_fifo_free_own(f, page);
    else qy_fifo_free_remote(f, page);
}

// The life lock makes one step of a block's end and the look whether it was the last one.
QY_INLINE void fifo_observed_free(qy_fifo_t *f, void *ptr) {
    qy_lock_take(&f->life);
    qy_observe_free(&f->hot.pool, &QY_STACK_CALLER(), ptr);
    bool last = f->dying && qy_observe_live(&f->hot.pool) == 0;
    qy_lock_drop(&f->life);
    if (last) qy_fifo_finish(f);
}

static QY_COLD void count_free(quarry_pool_t *pool, void *ptr, size_t size) {
    qy_count(pool, QY_COUNT_FREE, size == QUARRY_SIZE_UNKNOWN ? 0 : size);
    qy_pool_trace_free(pool, ptr);
}

void quarry_fifo_free_slow(quarry_pool_t *pool, void *ptr, size_t size) {
    qy_fifo_t *f = fifo_of(pool);
    if (QY_UNLIKELY(fifo_observed(f))) {
        fifo_observed_free(f, ptr);
        return;
    }
    if (QY_UNLIKELY(pool->mode & QY_MODE_COUNTED)) count_free(pool, ptr, size);
    fifo_free_block(f, ptr);
}

static void fifo_free(quarry_pool_t *pool, void *ptr, size_t size) { quarry_fifo_free(pool, ptr, size); }

static void fifo_raw_free(quarry_pool_t *pool, void *ptr, size_t size) {
    (void)size;
    fifo_free_block(fifo_of(pool), ptr);
}

// ---- resize --------------------------------------------------------------------------------------------

// The newest block ends where the next one would begin.
QY_INLINE bool is_newest(const qy_fifo_t *f, const char *p, size_t bytes) { return p + bytes == qy_fifo_pos(f); }

// The newest block, of `old` bytes, gets `size` (both rounded up to 8).
QY_INLINE bool resize_newest(qy_fifo_t *f, char *p, size_t old, size_t size) {
    if (size > old && size - old > (size_t)(f->end - (p + old))) return false;
    if (size < old) {
        // What it gives up has been written to.
        if (f->dirty < p + old) f->dirty = p + old;
        if (f->hot.clean > p + size) f->hot.clean = p + size;
    }
    qy_fifo_set_pos(f, p + size);
    return true;
}

QY_INLINE void *resize_in_place(qy_fifo_t *f, char *p, size_t old_size, size_t size, unsigned flags) {
    size_t old = qy_round_up(qy_max(old_size, 1), 8), now = qy_round_up(qy_max(size, 1), 8);
    bool newest = is_newest(f, p, old);
    if (size > old_size) {
        if (!newest || !resize_newest(f, p, old, now)) return NULL;
        if (flags & QUARRY_POOL_ZERO) {
            memset(p + old_size, 0, qy_min(size, old) - old_size);  // what rounding left
            if (p + now > f->hot.clean) quarry_fifo_clean(&f->hot, p + old, p + now);
        }
    } else if (newest) {
        resize_newest(f, p, old, now);
    }
    return p;
}

// The request is sane. `tells`, a constant: the recorder, if the pool is recorded.
QY_INLINE void *resize(
    qy_fifo_t *f, char *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags, bool tells) {
    bool aligned = ((uintptr_t)ptr & (alignment - 1)) == 0;
    char *p = aligned && size <= QUARRY_POOL_MAX - 7 ? resize_in_place(f, ptr, old_size, size, flags) : NULL;
    bool moves = !p;
    if (moves) {
        p = fifo_take(f, size, alignment, size > old_size ? flags : 0);
        if (!p) return qy_pool_no_memory(&f->hot.pool, size);
        memcpy(p, ptr, qy_min(old_size, size));
    }
    if (tells) qy_pool_trace_resized(&f->hot.pool, ptr, size, p);
    if (moves) fifo_free_block(f, ptr);
    return p;
}

static QY_COLD void *fifo_counted_resize(
    qy_fifo_t *f, char *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags) {
    void *p = resize(f, ptr, old_size, size, alignment, flags, true);
    if (p) qy_count(&f->hot.pool, QY_COUNT_RESIZE, size);
    return p;
}

static void *fifo_resize(
    quarry_pool_t *pool, void *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags) {
    if (!ptr) return fifo_alloc(pool, size, alignment, flags);
    qy_fifo_t *f = fifo_of(pool);
    fifo_must_own(f);
    if (!qy_pool_sane(pool, size, alignment)) return qy_pool_refuse(pool, size, alignment);
    if (QY_UNLIKELY(fifo_observed(f)))
        return qy_observe_resize(pool, &QY_STACK_CALLER(), 0, ptr, size, alignment, flags);
    if (old_size > QUARRY_POOL_MAX - 7) {
        errno = EINVAL;
        return NULL;
    }
    if (QY_UNLIKELY(pool->mode & QY_MODE_COUNTED)) return fifo_counted_resize(f, ptr, old_size, size, alignment, flags);
    return resize(f, ptr, old_size, size, alignment, flags, false);
}

// ---- looking -------------------------------------------------------------------------------------------

// Of a pool that is checked or logged: for the log, in whatever thread and under whatever lock of ours, so
// without a lock and without touching a page. Operations are counted exactly then (log.c).
static void stats_of_logged(qy_fifo_t *f, quarry_pool_stats_t *s) {
    uintptr_t pos = (uintptr_t)__atomic_load_n(&f->pos, __ATOMIC_RELAXED);
    size_t now = pos ? pos - ((pos - 1) & f->hot.mask) : 0;  // in the current page, with its head
    s->used_bytes = s->allocs == s->frees ? 0 : f->used_left + now;
}

static void fifo_stats(quarry_pool_t *pool, quarry_pool_stats_t *s) {
    qy_fifo_t *f = fifo_of(pool);
    if (pool->mode) {
        stats_of_logged(f, s);
        return;
    }
    qy_lock_take(&f->lock);
    uint64_t blocks = __atomic_load_n(&f->hot.blocks, __ATOMIC_RELAXED), freed = 0;
    size_t now = 0;
    if (f->current) {
        char *pos = __atomic_load_n(&f->hot.pos, __ATOMIC_ACQUIRE);
        if (!pos) pos = __atomic_load_n(&f->pos, __ATOMIC_RELAXED);  // it is being destroyed
        now = (size_t)(pos - qy_fifo_start(f->current));
        freed = qy_fifo_freed_of(f->current, blocks, true);
        if (freed > blocks) freed = blocks;  // read a moment apart
    } else {
        blocks = 0;
    }
    s->used_bytes = f->used_left + (freed < blocks ? now : 0);
    s->allocs = f->blocks_left + blocks;
    s->frees = f->blocks_ended + freed;
    s->requested_bytes = f->bytes_left + now;
    QY_LIST_EACH(l, &f->pages) {
        qy_fifo_page_t *page = QY_LIST_ITEM(l, qy_fifo_page_t, link);
        s->frees += qy_fifo_freed_of(page, page->blocks, false);
    }
    qy_lock_drop(&f->lock);
}

// ---- life ------------------------------------------------------------------------------------------------

void qy_fifo_finish(qy_fifo_t *f) {
    qy_pool_retire(&f->hot.pool);
    qy_pool_trace_close(&f->hot.pool);
    if (fifo_observed(f)) qy_observe_close(&f->hot.pool);
    // Without observers nothing lives in it any more.
    qy_assert(fifo_observed(f) || (!f->npages && !f->busy));
    qy_fifo_put_all(f);
    qy_pool_drop(&f->hot.pool);
}

static void fifo_destroy(quarry_pool_t *pool) {
    qy_fifo_t *f = fifo_of(pool);
    if (!fifo_observed(f)) {
        // A thread that frees a block may look, for the trace. From now on allocation finds the mark in its slow path.
        __atomic_store_n(&f->pos, qy_fifo_pos(f), __ATOMIC_RELAXED);
        __atomic_store_n(&f->hot.pos, NULL, __ATOMIC_RELEASE);
        f->hot.limit = NULL;
        if (qy_fifo_freeze(f)) qy_fifo_finish(f);
        return;
    }
    qy_lock_take(&f->life);
    f->dying = true;
    pool->alive = QY_POOL_DYING;
    bool last = qy_observe_live(pool) == 0;
    qy_lock_drop(&f->life);
    if (last) qy_fifo_finish(f);
}

static void fifo_fork(quarry_pool_t *pool, int phase) {
    qy_fifo_t *f = fifo_of(pool);
    qy_lock_fork(&f->life, phase);
    qy_lock_fork(&f->lock, phase);
}

static const quarry_pool_ops_t fifo_ops = {
    .kind = "fifo",
    .capabilities = QUARRY_POOL_FREES | QUARRY_POOL_ANY_FREE | QUARRY_POOL_GROWS,
    .max_alignment = QY_FIFO_ALIGN_MAX,
    .alloc = fifo_alloc,
    .resize = fifo_resize,
    .free = fifo_free,
    .check = qy_fifo_check,
    .stats = fifo_stats,
    .destroy = fifo_destroy,
    .raw_alloc = fifo_raw_alloc,
    .raw_free = fifo_raw_free,
    .fork = fifo_fork,
};

quarry_pool_t *quarry_fifo_create(const quarry_fifo_options_t *options) {
    static const quarry_fifo_options_t defaults;
    if (!options) options = &defaults;
    qy_fifo_t *f = qy_pool_new(&fifo_ops, sizeof *f, &options->pool);
    if (!f) return NULL;
    size_t page = qy_min(qy_max(options->page_bytes, qy_max(QY_FIFO_PAGE_MIN, qy_os_page_size())), QY_FIFO_PAGE_MAX);
    quarry_pool_t *parent = options->pool.parent;
    f->hot.pool.info->stats_lock = true;
    f->page_bytes = (size_t)1 << qy_log2_ceil(page);
    f->hot.mask = ~(f->page_bytes - 1);
    f->owner = qy_os_thread_token();
    f->spare_max = options->spare_pages;
    f->shared_parent = !parent || (parent->ops->capabilities & QUARRY_POOL_SHARED);
    qy_list_init(&f->pages);
    qy_list_init(&f->spares);
    qy_list_init(&f->waiting);
    if (!qy_fifo_first_page(f)) {
        qy_pool_no_memory(&f->hot.pool, f->page_bytes);
        qy_pool_drop(&f->hot.pool);
        return NULL;
    }
    qy_pool_ready(&f->hot.pool);
    return &f->hot.pool;
}

void quarry_fifo_adopt(quarry_pool_t *pool) {
    qy_fifo_t *f = fifo_of(pool);
    qy_pool_must_live(pool);
    qy_lock_take(&f->lock);
    f->owner = qy_os_thread_token();
    QY_LIST_EACH(l, &f->pages)
        __atomic_store_n(&QY_LIST_ITEM(l, qy_fifo_page_t, link)->hot.key, qy_fifo_key(f), __ATOMIC_RELAXED);
    __atomic_store_n(&f->current->hot.key, qy_fifo_key(f), __ATOMIC_RELAXED);
    qy_lock_drop(&f->lock);
}

void quarry_fifo_trim(quarry_pool_t *pool) {
    fifo_must_own(fifo_of(pool));
    qy_fifo_put_spares(fifo_of(pool));
}
