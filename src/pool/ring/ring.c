// SPDX-License-Identifier: MIT
// ring.c: frames and blocks of a ring, and its life. Which chunk is filled: ring_chunk.c.
#include <errno.h>
#include <string.h>

#include "base/num.h"
#include "os/os.h"
#include "pool/observe.h"
#include "pool/ring.h"
#include "pool/trace.h"

static qy_ring_t *ring_of(quarry_pool_t *pool) { return (qy_ring_t *)pool; }
static bool ring_observed(const qy_ring_t *r) { return r->hot.pool.mode & QY_MODE_OBSERVED; }
static bool ring_counted(const qy_ring_t *r) { return r->hot.pool.mode & QY_MODE_COUNTED; }
static uint64_t group_of_open(const qy_ring_t *r) { return r->open ? r->open->group : 0; }
static quarry_ring_frame_t number_of_open(const qy_ring_t *r) { return r->open ? qy_frame_number(r->open) : 0; }

static void ring_must_own(const qy_ring_t *r) {
    qy_pool_must_live(&r->hot.pool);
    if (QY_UNLIKELY(r->owner != qy_os_thread_token()))
        qy_fatal(QY_FAULT_WRONG_THREAD, r, "ring \"%s\" belongs to another thread (quarry_ring_adopt changes that)",
            r->hot.pool.info->name);
}

_Noreturn static QY_COLD void no_open_frame(const qy_ring_t *r, const char *what) {
    if (r->last_sealed)
        qy_fatal(QY_FAULT_SEALED_FRAME, r, "%s after frame %x of ring \"%s\" was sealed, before another was opened",
            what, r->last_sealed, r->hot.pool.info->name);
    qy_fatal(QY_FAULT_NO_FRAME, r, "%s, and no frame of ring \"%s\" was ever opened", what, r->hot.pool.info->name);
}

// ---- allocation ----------------------------------------------------------------------------------------

void quarry_ring_clean(quarry_ring_t *ring, char *block, char *next) {
    qy_ring_t *r = (qy_ring_t *)ring;
    char *from = ring->clean > block ? ring->clean : block;
    char *to = r->end - next > QY_RING_CLEAN_AHEAD ? next + QY_RING_CLEAN_AHEAD : r->end;
    if (to < r->dirty) {
        memset(from, 0, (size_t)(to - from));
        ring->clean = to;
    } else {
        if (r->dirty > from) memset(from, 0, (size_t)(r->dirty - from));
        ring->clean = r->end;
    }
}

// The request is sane, and a frame is open.
static void *ring_take(qy_ring_t *r, size_t size, size_t alignment, unsigned flags) {
    size = qy_max(size, 1);
    for (int turns = 0;; turns++) {
        char *p = qy_ptr_up(qy_ring_pos(r), alignment), *own, *dirty = NULL;
        if (p <= r->end && size <= (size_t)(r->end - p)) {
            qy_ring_set_pos(r, p + size);
            if ((flags & QUARRY_POOL_ZERO) && p + size > r->hot.clean) quarry_ring_clean(&r->hot, p, p + size);
            return p;
        }
        qy_assert(turns == 0);
        if (!qy_ring_turn(r, size, alignment, &own, &dirty)) return NULL;
        if (!own) continue;
        if ((flags & QUARRY_POOL_ZERO) && dirty > own) memset(own, 0, qy_min(size, (size_t)(dirty - own)));
        return own;
    }
}

static QY_COLD void *ring_counted_alloc(qy_ring_t *r, size_t size, size_t alignment, unsigned flags) {
    quarry_pool_t *pool = &r->hot.pool;
    qy_bump(&pool->info->slow_calls, 1);
    void *p = ring_take(r, size, alignment, flags);
    if (!p) return qy_pool_no_memory(pool, size);
    qy_count(pool, QY_COUNT_ALLOC, size);
    return qy_ring_trace_alloc(r, size, alignment, p);
}

void *quarry_ring_alloc_slow(quarry_ring_t *ring, size_t size, size_t alignment, unsigned flags) {
    qy_ring_t *r = (qy_ring_t *)ring;
    if (r == &qy_ring_none) no_open_frame(r, "allocation");
    ring_must_own(r);
    if (!r->open) no_open_frame(r, "allocation");
    if (!qy_pool_sane(&ring->pool, size, alignment)) return qy_pool_refuse(&ring->pool, size, alignment);
    if (QY_UNLIKELY(ring_observed(r)))
        return qy_observe_alloc(&ring->pool, &QY_STACK_CALLER(), group_of_open(r), size, alignment, flags);
    if (QY_UNLIKELY(ring_counted(r))) return ring_counted_alloc(r, size, alignment, flags);
    qy_bump(&ring->pool.info->slow_calls, 1);
    void *p = ring_take(r, size, alignment, flags);
    return p ? p : qy_pool_no_memory(&ring->pool, size);
}

static void *ring_alloc(quarry_pool_t *pool, size_t size, size_t alignment, unsigned flags) {
    return quarry_ring_alloc(pool, size, alignment, flags);
}
static void *ring_raw_alloc(quarry_pool_t *pool, size_t size, size_t alignment) {
    return ring_take(ring_of(pool), size, alignment, 0);
}

// Blocks end with their frame.
static void ring_free(quarry_pool_t *pool, void *ptr, size_t size) {
    (void)size;
    if (QY_UNLIKELY(pool->mode & QY_MODE_OBSERVED)) qy_observe_free(pool, &QY_STACK_CALLER(), ptr);
}

// ---- resize --------------------------------------------------------------------------------------------

static bool in_open_frame(qy_ring_t *r, char *p) {
    if (r->began == r->current) {
        if (p >= r->frame_start && p < qy_ring_pos(r)) return true;
    } else if (p >= r->frame_start && p < r->began->pos) {
        return true;
    }
    for (qy_ring_chunk_t *c = r->newest; c; c = c->older) {
        if (p >= qy_ring_start(c) && p < (c == r->current ? qy_ring_pos(r) : c->pos)) return true;
    }
    return false;
}

// Of the newest block, [p, p + old). False: no room.
QY_INLINE bool resize_newest(qy_ring_t *r, char *p, size_t old, size_t size) {
    if (size > old && size - old > (size_t)(r->end - (p + old))) return false;
    if (size < old) {
        // What it gives up has been written to.
        if (r->dirty < p + old) r->dirty = p + old;
        if (r->hot.clean > p + size) r->hot.clean = p + size;
    }
    qy_ring_set_pos(r, p + size);
    return true;
}

QY_INLINE bool resize_in_place(qy_ring_t *r, char *p, size_t old_size, size_t size, unsigned flags) {
    size_t old = qy_max(old_size, 1), now = qy_max(size, 1);
    bool newest = p + old == qy_ring_pos(r);
    if (now <= old) {
        if (newest) resize_newest(r, p, old, now);
        if (!old_size && size && (flags & QUARRY_POOL_ZERO)) *p = 0;
        return true;
    }
    if (!newest || !resize_newest(r, p, old, now)) return false;
    if (flags & QUARRY_POOL_ZERO) {
        if (!old_size) *p = 0;
        if (p + now > r->hot.clean) quarry_ring_clean(&r->hot, p + old, p + now);
    }
    return true;
}

// The block is of the open frame, the request sane. NULL: refused.
QY_INLINE void *resize(qy_ring_t *r, char *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags) {
    bool aligned = ((uintptr_t)ptr & (alignment - 1)) == 0;
    if (aligned && resize_in_place(r, ptr, old_size, size, flags)) return ptr;
    char *p = ring_take(r, size, alignment, size > old_size ? flags : 0);
    if (!p) return qy_pool_no_memory(&r->hot.pool, size);
    memcpy(p, ptr, qy_min(old_size, size));
    return p;
}

static QY_COLD void *ring_counted_resize(
    qy_ring_t *r, char *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags) {
    void *p = resize(r, ptr, old_size, size, alignment, flags);
    if (p) qy_count(&r->hot.pool, QY_COUNT_RESIZE, size);
    return qy_ring_trace_resized(r, ptr, size, p);
}

void *quarry_ring_resize_slow(
    quarry_ring_t *ring, void *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags) {
    if (!ptr) return quarry_ring_bump(ring, size, alignment, flags);
    qy_ring_t *r = (qy_ring_t *)ring;
    quarry_pool_t *pool = &ring->pool;
    if (r == &qy_ring_none) no_open_frame(r, "resize");
    ring_must_own(r);
    if (!r->open) no_open_frame(r, "resize");
    if (!qy_pool_sane(pool, size, alignment)) return qy_pool_refuse(pool, size, alignment);
    if (QY_UNLIKELY(ring_observed(r)))
        return qy_observe_resize(pool, &QY_STACK_CALLER(), group_of_open(r), ptr, size, alignment, flags);
    if (old_size > QUARRY_POOL_MAX) {
        errno = EINVAL;
        return NULL;
    }
    if (!in_open_frame(r, ptr))
        qy_fatal(
            QY_FAULT_WRONG_FRAME, ptr, "not of the open frame %x of ring \"%s\"", number_of_open(r), pool->info->name);
    return QY_UNLIKELY(ring_counted(r)) ? ring_counted_resize(r, ptr, old_size, size, alignment, flags)
                                        : resize(r, ptr, old_size, size, alignment, flags);
}

static void *ring_resize(
    quarry_pool_t *pool, void *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags) {
    return quarry_ring_resize_slow((quarry_ring_t *)pool, ptr, old_size, size, alignment, flags);
}

// ---- frames --------------------------------------------------------------------------------------------

static QY_COLD bool more_frames(qy_ring_t *r) {
    qy_ring_recall(r);
    if (!r->free_frames) r->free_frames = qy_frames_get();
    return r->free_frames != NULL;
}

// The frame with the first free record begins.
QY_INLINE quarry_ring_frame_t begin(qy_ring_t *r, qy_ring_frame_t *f) {
    qy_ring_chunk_t *c = r->current;
    qy_assert(!r->open && (QY_FRAME_STATE(f->word) == QY_FRAME_FREE || QY_FRAME_STATE(f->word) == QY_FRAME_RELEASED));
    r->free_frames = f->next;
    f->next = NULL;
    f->ring = r;
    // The next generation, which is never 0, and state 0.
    uint64_t word = (atomic_load_explicit(&f->word, memory_order_relaxed) | QY_FRAME_INDEX_MASK) + 1;
    if (QY_UNLIKELY(!word)) word = QY_FRAME_INDEX_MASK + 1;
    atomic_store_explicit(&f->word, word | QY_FRAME_OPEN, memory_order_relaxed);
    *c->last = f;
    c->last = &f->next;
    r->open = f;
    r->began = c;
    r->newest = NULL;
    // On a cache line of its own: another thread may be reading the frame before it.
    r->frame_start = qy_ptr_up(r->pos, QY_CACHE_LINE);
    return word | f->index;
}

// Whatever is not the ordinary case: the first frame of a thread, records or chunks to look after, a watched ring,
// misuse.
static QY_COLD quarry_ring_frame_t newframe_slow(qy_ring_t *r) {
    if (r == &qy_ring_none) {
        r = (qy_ring_t *)quarry_ring_of_thread();
        if (!r) return 0;
    }
    quarry_pool_t *pool = &r->hot.pool;
    ring_must_own(r);
    if (r->open)
        qy_fatal(QY_FAULT_UNBALANCED, r, "frame %x of ring \"%s\" is still open: seal it before the next one",
            number_of_open(r), pool->info->name);
    if (!r->countdown--) {
        r->countdown = QY_RING_PERIOD;
        qy_ring_period(r);
    }
    if (!r->free_frames && !more_frames(r)) {
        qy_pool_no_memory(pool, sizeof(qy_ring_frame_t));
        return 0;
    }
    quarry_ring_frame_t number = begin(r, r->free_frames);
    qy_ring_set_pos(r, r->frame_start);
    if (!pool->mode) {
        r->hot.limit = r->end;
        return number;
    }
    r->open->group = ++r->groups;
    if (ring_counted(r)) {
        qy_count(pool, QY_COUNT_PUSH, 0);
        r->ntraced = 0;
        qy_pool_trace_pushed(pool);
    }
    return number;
}

quarry_ring_frame_t quarry_ring_newframe(quarry_pool_t *pool) {
    qy_ring_t *r = ring_of(pool);
    qy_ring_frame_t *f = r->free_frames;
    // A destroyed ring has no owner.
    if (QY_UNLIKELY(!f || r->open || pool->mode || !r->countdown || r->owner != qy_os_thread_token()))
        return newframe_slow(r);
    r->countdown--;
    quarry_ring_frame_t number = begin(r, f);
    __atomic_store_n(&r->hot.pos, r->frame_start, __ATOMIC_RELAXED);
    r->hot.limit = r->end;
    return number;
}

quarry_ring_frame_t quarry_ring_getframe(quarry_pool_t *pool) { return number_of_open(ring_of(pool)); }

// The open frame gets `state`; the ring stands at `pos`.
QY_INLINE quarry_ring_frame_t seal(qy_ring_t *r, char *pos, unsigned state) {
    qy_ring_frame_t *f = r->open;
    quarry_ring_frame_t number = qy_frame_number(f);
    qy_assert(pos >= qy_ring_start(r->current) && pos <= r->end);
    __atomic_store_n(&r->pos, pos, __ATOMIC_RELAXED);
    r->open = NULL;
    __atomic_store_n(&r->hot.pos, NULL, __ATOMIC_RELAXED);
    r->hot.limit = NULL;
    r->last_sealed = number;
    // Release: whoever releases the frame finds everything before it done.
    atomic_store_explicit(&f->word, qy_frame_word(number, state), memory_order_release);
    return number;
}

static QY_COLD quarry_ring_frame_t seal_slow(qy_ring_t *r) {
    if (!r->open) no_open_frame(r, "seal");
    qy_pool_trace_sealed(&r->hot.pool, number_of_open(r));
    return seal(r, r->pos, QY_FRAME_WATCHED);
}

quarry_ring_frame_t quarry_ring_seal(quarry_pool_t *pool) {
    qy_ring_t *r = ring_of(pool);
    return QY_UNLIKELY(!r->open || pool->mode) ? seal_slow(r) : seal(r, r->hot.pos, QY_FRAME_SEALED);
}

static void finish(qy_ring_t *r) {
    qy_pool_retire(&r->hot.pool);
    qy_pool_trace_close(&r->hot.pool);
    qy_observe_close(&r->hot.pool);
    qy_ring_put_all(r);
    qy_ring_trace_drop(r);
    qy_pool_drop(&r->hot.pool);
}

_Noreturn static QY_COLD void bad_release(quarry_ring_frame_t number, const qy_ring_frame_t *f, uint64_t word) {
    const void *p = (const void *)(uintptr_t)number;
    if (!f || !(number >> QY_FRAME_INDEX_BITS) || QY_FRAME_GENERATION(word) != number >> QY_FRAME_INDEX_BITS) {
        bool reused = f && number >> QY_FRAME_INDEX_BITS && QY_FRAME_GENERATION(word) > number >> QY_FRAME_INDEX_BITS;
        qy_fatal(QY_FAULT_STALE_FRAME, p,
            reused ? "released long ago; its record serves another frame now" : "not the number of a frame");
    }
    if (QY_FRAME_STATE(word) == QY_FRAME_OPEN)
        qy_fatal(QY_FAULT_UNBALANCED, p, "release of a frame that is not sealed");
    qy_fatal(QY_FAULT_DOUBLE_RELEASE, p, "of a frame");
}

// Whatever is not the ordinary case: a checked ring, a destroyed one, or misuse.
static QY_COLD void release_slow(quarry_ring_frame_t number, qy_ring_frame_t *f, const qy_stack_regs_t *caller) {
    uint64_t released = qy_frame_word(number, QY_FRAME_RELEASED);
    uint64_t word = f ? atomic_load_explicit(&f->word, memory_order_acquire) : 0;
    for (bool traced = false;; traced = true) {
        unsigned state = QY_FRAME_STATE(word);
        bool ours = f && QY_FRAME_GENERATION(word) == number >> QY_FRAME_INDEX_BITS;
        if (!ours || (state != QY_FRAME_SEALED && state != QY_FRAME_WATCHED && state != QY_FRAME_ORPHAN))
            bad_release(number, f, word);
        // The ring is there as long as a frame of it is.
        qy_ring_t *r = f->ring;
        // Destroy may turn a WATCHED frame into an ORPHAN meanwhile: then once more, but it ends only once.
        if (state != QY_FRAME_SEALED && ring_counted(r) && !traced) {
            qy_count(&r->hot.pool, QY_COUNT_POP, 0);
            qy_pool_trace_released(&r->hot.pool, number);
        }
        if (state != QY_FRAME_SEALED && ring_observed(r)) qy_observe_end(&r->hot.pool, caller, f->group, f->group);
        if (!atomic_compare_exchange_strong_explicit(
                &f->word, &word, released, memory_order_acq_rel, memory_order_acquire))
            continue;
        if (state == QY_FRAME_ORPHAN && atomic_fetch_sub_explicit(&r->orphans, 1, memory_order_acq_rel) == 1) finish(r);
        return;
    }
}

void quarry_ring_release(quarry_ring_frame_t number) {
    qy_ring_frame_t *f = qy_frame_of(number);
    uint64_t sealed = qy_frame_word(number, QY_FRAME_SEALED);
    if (QY_UNLIKELY(!f || !atomic_compare_exchange_strong_explicit(&f->word, &sealed,
                              qy_frame_word(number, QY_FRAME_RELEASED), memory_order_release, memory_order_relaxed)))
        release_slow(number, f, &QY_STACK_CALLER());
}

// ---- marks ---------------------------------------------------------------------------------------------

quarry_ring_mark_t quarry_ring_checkpoint(quarry_pool_t *pool) {
    qy_ring_t *r = ring_of(pool);
    if (!r->open) no_open_frame(r, "checkpoint");
    ring_must_own(r);
    return (quarry_ring_mark_t){number_of_open(r), qy_ring_pos(r), r->current, r->newest};
}

void quarry_ring_rewind(quarry_pool_t *pool, quarry_ring_mark_t mark) {
    qy_ring_t *r = ring_of(pool);
    if (!r->open) no_open_frame(r, "rewind");
    ring_must_own(r);
    if (mark.frame != number_of_open(r))
        qy_fatal(QY_FAULT_UNBALANCED, r, "rewind to a mark of frame %x while frame %x of ring \"%s\" is open",
            mark.frame, number_of_open(r), pool->info->name);
    const qy_ring_chunk_t *c = r->newest;
    while (c && c != mark.newest) c = c->older;
    if (c != mark.newest || (mark.chunk == r->current && mark.pos > qy_ring_pos(r)))
        qy_fatal(QY_FAULT_UNBALANCED, r, "rewind to a mark of ring \"%s\" behind one that was gone back to",
            pool->info->name);
    // A checker's blocks end with the frame.
    if (ring_observed(r)) return;
    if (QY_UNLIKELY(ring_counted(r))) qy_ring_trace_rewind(r, &mark);
    qy_ring_untake(r, mark.newest, mark.chunk, mark.pos);
}

void quarry_ring_reset(quarry_pool_t *pool) {
    if (pool == &qy_ring_none.hot.pool) return;
    ring_must_own(ring_of(pool));
    qy_ring_give_back(ring_of(pool));
}

void quarry_ring_adopt(quarry_pool_t *pool) {
    qy_ring_t *r = ring_of(pool);
    qy_pool_must_live(pool);
    if (r->open)
        qy_fatal(QY_FAULT_UNBALANCED, r, "frame %x of ring \"%s\" is open while another thread adopts it",
            number_of_open(r), pool->info->name);
    r->owner = qy_os_thread_token();
}

// ---- looking -------------------------------------------------------------------------------------------

static void ring_stats(quarry_pool_t *pool, quarry_pool_stats_t *s) {
    qy_ring_t *r = ring_of(pool);
    char *start = atomic_load_explicit(&r->current_start, memory_order_relaxed);
    char *pos = __atomic_load_n(&r->hot.pos, __ATOMIC_RELAXED);
    if (!pos) pos = __atomic_load_n(&r->pos, __ATOMIC_RELAXED);
    // Read a moment apart by another thread, they may be of different chunks.
    size_t now = pos >= start && (size_t)(pos - start) <= s->held_bytes ? (size_t)(pos - start) : 0;
    s->used_bytes = atomic_load_explicit(&r->used_left, memory_order_relaxed) + now;
    if (!pool->mode) s->requested_bytes = atomic_load_explicit(&r->bytes_left, memory_order_relaxed) + now;
}

// ---- life ------------------------------------------------------------------------------------------------

static void orphan(qy_ring_t *r, qy_ring_chunk_t *c) {
    for (qy_ring_frame_t *f = c->first; f; f = f->next) {
        // Acquire: who released a watched frame has looked at the ring before, which may be finished now.
        uint64_t word = atomic_load_explicit(&f->word, memory_order_acquire);
        if (QY_FRAME_STATE(word) == QY_FRAME_RELEASED) continue;
        // Counted before it can be found.
        atomic_fetch_add_explicit(&r->orphans, 1, memory_order_relaxed);
        uint64_t orphaned = word - QY_FRAME_STATE(word) + QY_FRAME_ORPHAN;
        if (!atomic_compare_exchange_strong_explicit(
                &f->word, &word, orphaned, memory_order_acq_rel, memory_order_acquire))
            atomic_fetch_sub_explicit(&r->orphans, 1, memory_order_relaxed);
    }
}

static void ring_destroy(quarry_pool_t *pool) {
    qy_ring_t *r = ring_of(pool);
    qy_ring_thread_forget(r);
    atomic_store_explicit(&r->orphans, 1, memory_order_relaxed);
    if (r->open) {
        quarry_ring_frame_t number = number_of_open(r);
        uint64_t group = group_of_open(r);
        __atomic_store_n(&r->pos, qy_ring_pos(r), __ATOMIC_RELAXED);
        r->open = NULL;
        r->hot.pos = r->hot.limit = NULL;
        qy_pool_trace_popped(pool);
        if (ring_observed(r)) qy_observe_end(pool, &QY_STACK_CALLER(), group, group);
        atomic_store_explicit(
            &qy_frame_of(number)->word, qy_frame_word(number, QY_FRAME_RELEASED), memory_order_relaxed);
    }
    pool->alive = QY_POOL_DYING;
    r->owner = 0;
    qy_ring_give_back(r);
    orphan(r, r->current);
    QY_LIST_EACH(l, &r->left)
        orphan(r, QY_LIST_ITEM(l, qy_ring_chunk_t, link));
    if (atomic_fetch_sub_explicit(&r->orphans, 1, memory_order_acq_rel) == 1) finish(r);
}

const quarry_pool_ops_t qy_ring_ops = {
    .kind = "ring",
    .capabilities = QUARRY_POOL_FRAMES | QUARRY_POOL_GROWS,
    .max_alignment = QY_RING_ALIGN_MAX,
    .alloc = ring_alloc,
    .resize = ring_resize,
    .free = ring_free,
    .check = qy_ring_check,
    .stats = ring_stats,
    .destroy = ring_destroy,
    .raw_alloc = ring_raw_alloc,
};

quarry_pool_t *quarry_ring_create(const quarry_ring_options_t *options) {
    static const quarry_ring_options_t defaults;
    if (!options) options = &defaults;
    qy_ring_t *r = qy_pool_new(&qy_ring_ops, sizeof *r, &options->pool);
    if (!r) return NULL;
    r->owner = qy_os_thread_token();
    r->countdown = QY_RING_PERIOD;
    r->chunk_bytes = qy_min(qy_max(options->chunk_bytes, QY_RING_CHUNK_MIN), QUARRY_POOL_MAX / 4);
    if (!qy_ring_first_chunk(r)) {
        qy_pool_no_memory(&r->hot.pool, r->chunk_bytes);
        qy_pool_drop(&r->hot.pool);
        return NULL;
    }
    qy_pool_ready(&r->hot.pool);
    return &r->hot.pool;
}
