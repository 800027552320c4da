// SPDX-License-Identifier: MIT
// stack.c: blocks and frames of a stack, off the fast path, and its life. Which chunk is filled: stack_chunk.c.
#include <errno.h>
#include <string.h>

#include "base/num.h"
#include "os/os.h"
#include "pool/observe.h"
#include "pool/observe_guard.h"
#include "pool/stack.h"
#include "pool/trace.h"
#include "pool/zones.h"

static qy_stack_t *stack_of(quarry_pool_t *pool) { return (qy_stack_t *)pool; }
static bool stack_observed(const qy_stack_t *s) { return s->open.pool.mode & QY_MODE_OBSERVED; }
static bool stack_counted(const qy_stack_t *s) { return s->open.pool.mode & QY_MODE_COUNTED; }
static bool stack_recorded(const qy_stack_t *s) { return s->open.pool.mode & QY_MODE_RECORDED; }
static const char *name_of(const quarry_stack_hot_t *h) {
    return h->stack ? ((qy_stack_t *)h->stack)->open.pool.info->name : "t_stack";
}

static void stack_must_own(const qy_stack_t *s) {
    qy_pool_must_live(&s->open.pool);
    if (QY_UNLIKELY(s->thread && s->owner != qy_os_thread_token()))
        qy_fatal(QY_FAULT_WRONG_THREAD, s, "a stack of another thread (\"%s\")", s->open.pool.info->name);
}

// May the innermost frame allocate?
static void must_be_open(const quarry_stack_hot_t *h, const char *what) {
    if (QY_UNLIKELY(h->top & QY_STACK_SEALED))
        qy_fatal(QY_FAULT_SEALED_FRAME, (void *)qy_stack_frame(h->top), "%s in a sealed frame of stack \"%s\"", what,
            name_of(h));
    bool thread = h == &quarry_thread_stack;
    if (QY_UNLIKELY(thread && !h->top)) qy_fatal(QY_FAULT_NO_FRAME, NULL, "%s without a t_scope", what);
}

// The limit as the innermost frame has it: as far as the chunk is not fresh, a window while the stack waits to give
// back, or closed.
static void set_limit(qy_stack_t *s, bool window) {
    quarry_stack_hot_t *h = s->open.hot;
    bool closed = s->open.pool.mode || (h->top & QY_STACK_SEALED) || (s->thread && !h->top);
    if (closed || (s->ticks && !window)) h->limit = NULL;
    else if (s->ticks && s->current->clean > h->pos + QY_STACK_WINDOW) h->limit = h->pos + QY_STACK_WINDOW;
    else h->limit = s->current->clean;
}

// ---- allocation ----------------------------------------------------------------------------------------

// The innermost frame allocates: its end must look at what this does.
static void mark_top(qy_stack_t *s) {
    quarry_stack_hot_t *h = s->open.hot;
    if (!h->top) return;
    if (stack_counted(s) && !(h->top & QY_STACK_LOOK)) qy_count(&s->open.pool, QY_COUNT_PUSH, 0);
    qy_stack_set_top(h, h->top | QY_STACK_LOOK | (h->limit ? 0 : QY_STACK_OPENER));
}

static void *stack_raw_alloc(quarry_pool_t *pool, size_t size, size_t alignment) {
    qy_stack_t *s = stack_of(pool);
    const qy_stack_chunk_t *before = s->current;
    char *clean, *p = qy_stack_take(s, size, alignment, &clean);
    if (p) qy_stack_reused(s, p + size, s->current != before);
    return p;
}

// Is the request sane, the stack the caller's, and its innermost frame open? If not, who calls finds out what is wrong.
QY_INLINE bool stack_may_allocate(const qy_stack_t *s, size_t size, size_t alignment) {
    const quarry_pool_t *pool = &s->open.pool;
    uintptr_t top = s->open.hot->top;
    bool is_own = !s->thread || (top && s->owner == qy_os_thread_token());
    return QY_LIKELY(pool->alive == QY_POOL_ALIVE && !(top & QY_STACK_SEALED) && is_own) &&
           qy_pool_sane(pool, size, alignment);
}

QY_INLINE void *stack_observed_alloc(qy_stack_t *s, size_t size, size_t alignment, unsigned flags) {
    uint64_t group = qy_stack_group(s);
    if (group == UINT64_MAX) return qy_pool_no_memory(&s->open.pool, size);
    mark_top(s);
    return qy_observe_alloc(&s->open.pool, &QY_STACK_CALLER(), group, size, alignment, flags);
}

// The stack is guarded, and does nothing beside; the group is that of its innermost frame, which looks at its end.
QY_INLINE void *stack_guarded_alloc(
    qy_stack_t *s, const qy_stack_regs_t *caller, uint64_t group, size_t size, size_t alignment, unsigned flags) {
    quarry_stack_hot_t *h = s->open.hot;
    if (QY_UNLIKELY(size > QUARRY_POOL_MAX / 2)) return qy_pool_no_memory(&s->open.pool, size);
    size_t bytes = qy_zones_bytes(size, alignment);
    char *raw = qy_ptr_up(h->pos, qy_zone_left(alignment)), *end = raw + bytes;
    if (QY_LIKELY(h->pos && raw <= s->current->clean && bytes <= (size_t)(s->current->clean - raw))) {
        qy_stack_set_pos(h, end);
        qy_stack_reused(s, end, false);
    } else {
        raw = stack_raw_alloc(&s->open.pool, bytes, qy_zone_left(alignment));
        if (!raw) return qy_pool_no_memory(&s->open.pool, size);
    }
    return qy_guarded_begin(&s->open.pool, caller, group, raw, size, alignment, flags);
}

// Zeros from `from` to `end`; from `clean` on they are there.
static void stack_clear(char *from, char *end, const char *clean) {
    if (clean > from) memset(from, 0, qy_min((size_t)(end - from), (size_t)(clean - from)));
}

// The request is sane, the stack is the caller's and may allocate.
QY_INLINE void *plain_alloc(qy_stack_t *s, size_t size, size_t alignment, unsigned flags) {
    char *clean;
    mark_top(s);
    qy_stack_tick(s);
    char *p = qy_stack_take(s, qy_max(size, 1), alignment, &clean);
    set_limit(s, true);
    if (!p) return qy_pool_no_memory(&s->open.pool, size);
    if (flags & QUARRY_POOL_ZERO) stack_clear(p, p + size, clean);
    return p;
}

static QY_COLD void *stack_counted_alloc(qy_stack_t *s, size_t size, size_t alignment, unsigned flags) {
    quarry_pool_t *pool = &s->open.pool;
    if (stack_recorded(s) && qy_stack_group(s) == UINT64_MAX) return qy_pool_no_memory(pool, size);
    qy_bump(&pool->info->slow_calls, 1);
    void *p = plain_alloc(s, size, alignment, flags);
    if (p) qy_count(pool, QY_COUNT_ALLOC, size);
    return qy_pool_trace_alloc(pool, size, alignment, p);
}

void *quarry_stack_alloc_slow(quarry_stack_hot_t *h, size_t size, size_t alignment, unsigned flags) {
    qy_stack_t *s = (qy_stack_t *)h->stack;
    uint64_t group;
    if (s && qy_only_guards(&s->open.pool) && stack_may_allocate(s, size, alignment) && qy_stack_has_group(s, &group))
        return stack_guarded_alloc(s, &QY_STACK_CALLER(), group, size, alignment, flags);
    must_be_open(h, "allocation");
    s = h->stack ? (qy_stack_t *)h->stack : qy_stack_of_thread();
    if (!s) {
        errno = ENOMEM;
        return NULL;
    }
    stack_must_own(s);
    quarry_pool_t *pool = &s->open.pool;
    if (!qy_pool_sane(pool, size, alignment)) return qy_pool_refuse(pool, size, alignment);
    if (QY_UNLIKELY(stack_observed(s))) return stack_observed_alloc(s, size, alignment, flags);
    if (QY_UNLIKELY(stack_counted(s))) return stack_counted_alloc(s, size, alignment, flags);
    qy_bump(&pool->info->slow_calls, 1);
    return plain_alloc(s, size, alignment, flags);
}

static void *stack_alloc(quarry_pool_t *pool, size_t size, size_t alignment, unsigned flags) {
    return quarry_stack_alloc(pool, size, alignment, flags);
}

// Blocks end with their frame.
static void stack_free(quarry_pool_t *pool, void *ptr, size_t size) {
    if (QY_UNLIKELY(pool->mode & QY_MODE_OBSERVED)) qy_observe_free(pool, &QY_STACK_CALLER(), ptr);
    (void)size;
}

// ---- resize --------------------------------------------------------------------------------------------

// Is p a place in the innermost frame, with `old` bytes of it at most?
static bool in_frame(qy_stack_t *s, const char *p, size_t old) {
    quarry_stack_hot_t *h = s->open.hot;
    const quarry_stack_frame_t *f = (const quarry_stack_frame_t *)qy_stack_frame(h->top);
    const char *begin = f ? f->pos : NULL;
    const char *end = h->pos;
    for (qy_stack_chunk_t *c = s->current; c; c = c->prev, end = c ? c->pos : NULL) {
        bool first = begin ? begin >= qy_stack_start(c) && begin <= c->end : c == s->first;
        const char *from = first && begin ? begin : qy_stack_start(c);
        if (p >= from && p < end) return old <= (size_t)(end - p);
        if (first) return false;
    }
    return false;
}

// In place, if it can be done: true.
static bool stack_resize_in_place(qy_stack_t *s, char *p, size_t old, size_t size, char **ret_clean) {
    bool newest = p + old == s->open.hot->pos;
    if (size > old && (!newest || size - old > (size_t)(s->current->end - (p + old)))) return false;
    if (newest) *ret_clean = qy_stack_reach(s, p + size);
    return true;
}

static void *moved(qy_stack_t *s, char *ptr, size_t old, size_t size, size_t alignment, char **ret_clean) {
    char *pos = s->open.hot->pos;
    qy_stack_chunk_t *before = s->current;
    // The newest block leaves nothing behind it when it goes to another chunk; in this one it must not be overwritten.
    bool newest = ptr + old == pos;
    mark_top(s);
    s->growing = newest && size > old;
    char *p = qy_stack_take(s, size, alignment, ret_clean);
    s->growing = false;
    if (p && newest && s->current != before) qy_stack_shorten(s, before, ptr);
    set_limit(s, true);
    if (p) memcpy(p, ptr, qy_min(old, size));
    return p;
}

// The block is of the innermost frame, the request sane. NULL: refused.
QY_INLINE void *resize(qy_stack_t *s, char *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags) {
    size_t old = qy_max(old_size, 1), now = qy_max(size, 1);
    bool aligned = ((uintptr_t)ptr & (alignment - 1)) == 0;
    char *clean = ptr + now;
    char *p = aligned && stack_resize_in_place(s, ptr, old, now, &clean)
                  ? ptr
                  : moved(s, ptr, old_size, now, alignment, &clean);
    if (!p) return qy_pool_no_memory(&s->open.pool, size);
    if ((flags & QUARRY_POOL_ZERO) && size > old_size) stack_clear(p + old_size, p + size, clean);
    return p;
}

// The frame has a block, so it has a group; but for what a longjmp left behind.
static QY_COLD void *stack_counted_resize(
    qy_stack_t *s, char *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags) {
    quarry_pool_t *pool = &s->open.pool;
    if (stack_recorded(s) && qy_stack_group(s) == UINT64_MAX) return qy_pool_no_memory(pool, size);
    mark_top(s);
    void *p = resize(s, ptr, old_size, size, alignment, flags);
    if (p) qy_count(pool, QY_COUNT_RESIZE, size);
    return qy_pool_trace_resized(pool, ptr, size, p);
}

void *quarry_stack_resize_slow(
    quarry_stack_hot_t *h, void *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags) {
    if (!ptr) return quarry_stack_bump(h, size, alignment, flags);
    must_be_open(h, "resize");
    qy_stack_t *s = (qy_stack_t *)h->stack;
    if (!s) qy_fatal(QY_FAULT_WRONG_FRAME, ptr, "resized in a thread whose stack has no blocks");
    stack_must_own(s);
    quarry_pool_t *pool = &s->open.pool;
    if (!qy_pool_sane(pool, size, alignment)) return qy_pool_refuse(pool, size, alignment);
    if (QY_UNLIKELY(stack_observed(s))) {
        uint64_t group = qy_stack_group(s);
        if (group == UINT64_MAX) return qy_pool_no_memory(pool, size);
        mark_top(s);
        return qy_observe_resize(pool, &QY_STACK_CALLER(), group, ptr, size, alignment, flags);
    }
    if (old_size > QUARRY_POOL_MAX) {
        errno = EINVAL;
        return NULL;
    }
    if (QY_UNLIKELY(!in_frame(s, ptr, qy_max(old_size, 1))))
        qy_fatal(QY_FAULT_WRONG_FRAME, ptr, "no block of %z byte%S of the innermost frame %p of stack \"%s\"", old_size,
            (void *)qy_stack_frame(h->top), pool->info->name);
    return QY_UNLIKELY(stack_counted(s)) ? stack_counted_resize(s, ptr, old_size, size, alignment, flags)
                                         : resize(s, ptr, old_size, size, alignment, flags);
}

static void *stack_resize(
    quarry_pool_t *pool, void *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags) {
    return quarry_stack_resize_slow(quarry_stack_hot_of(pool), ptr, old_size, size, alignment, flags);
}

// ---- frames --------------------------------------------------------------------------------------------

// The frame is not the innermost one. That is misuse, unless those inside of it were skipped by a longjmp: then their
// records were in functions that have been left.
static QY_COLD void skipped(quarry_stack_hot_t *h, quarry_stack_frame_t *frame, uintptr_t here) {
    uintptr_t top = qy_stack_frame(h->top);
    if (h == &quarry_thread_stack && top && qy_stack_was_jumped_over(top, (uintptr_t)frame, here)) return;
    qy_fatal(QY_FAULT_UNBALANCED, frame, "frame %p of stack \"%s\" is popped while %p is the innermost one",
        (void *)frame, name_of(h), (void *)top);
}

// A frame of a guarded stack that ends as nearly all do: false if it does not, and nothing has been done.
QY_INLINE bool stack_guarded_pop(qy_stack_t *s, const qy_stack_regs_t *caller, quarry_stack_frame_t *frame) {
    quarry_stack_hot_t *h = s->open.hot;
    uintptr_t top = h->top, below = frame->prev;
    bool usual = qy_stack_frame(top) == (uintptr_t)frame && qy_stack_is_current(s, frame->pos) &&
                 !(s->ticks | s->once) && s->open.pool.alive == QY_POOL_ALIVE;
    if (QY_UNLIKELY(!usual || (s->thread && s->owner != qy_os_thread_token()))) return false;
    qy_stack_set_top(h, below);
    qy_bump(&s->open.pool.info->slow_calls, 1);
    if (s->nmarks && s->marks[s->nmarks - 1].frame == (uintptr_t)frame)
        qy_observe_leave(&s->open.pool, qy_guarded_end(&s->open.pool, caller, s->marks[--s->nmarks].group, UINT64_MAX));
    qy_stack_set_pos(h, frame->pos);
    if (qy_stack_frame(below) && (top & QY_STACK_OPENER) && !(below & QY_STACK_SEALED))
        qy_stack_set_top(h, below | QY_STACK_LOOK | QY_STACK_OPENER);
    return true;
}

void quarry_stack_pop_slow(quarry_stack_hot_t *h, quarry_stack_frame_t *frame) {
    const qy_stack_t *stack = (qy_stack_t *)h->stack;
    if (stack && qy_only_guards(&stack->open.pool) &&
        stack_guarded_pop((qy_stack_t *)h->stack, &QY_STACK_CALLER(), frame))
        return;
    int saved = errno;
    uintptr_t top = h->top, below;
    bool exact = qy_stack_frame(top) == (uintptr_t)frame;
    qy_stack_t *s = (qy_stack_t *)h->stack;
    if (s) stack_must_own(s);
    if (!exact) skipped(h, frame, (uintptr_t)__builtin_dwarf_cfa());
    below = frame->prev;
    qy_stack_set_top(h, below);
    if (!s) {  // a thread that has allocated nothing yet
        qy_stack_set_pos(h, frame->pos);
        errno = saved;
        return;
    }
    qy_bump(&s->open.pool.info->slow_calls, 1);
    if (stack_counted(s)) qy_count(&s->open.pool, QY_COUNT_POP, 0);
    if (stack_observed(s) || stack_recorded(s)) qy_stack_end_group(s, &QY_STACK_CALLER(), (uintptr_t)frame, !exact);
    atomic_store_explicit(&s->busy, true, memory_order_release);
    bool stays = qy_stack_go_back(s, frame->pos);
    atomic_store_explicit(&s->busy, false, memory_order_release);
    // What skipped frames did is not known: they may have opened limit.
    bool opener = (top & QY_STACK_OPENER) || !exact;
    if (qy_stack_frame(below)) {
        if (stays) below |= QY_STACK_LOOK;
        if (opener && !(below & QY_STACK_SEALED)) below |= QY_STACK_LOOK | QY_STACK_OPENER;
        qy_stack_set_top(h, below);
    }
    qy_stack_tick(s);
    set_limit(s, false);
    if (s->once && !below) quarry_pool_destroy(&s->open.pool);
    errno = saved;
}

void quarry_stack_seal_slow(quarry_stack_hot_t *h, int seal) {
    qy_stack_t *s = (qy_stack_t *)h->stack;
    if (s) stack_must_own(s);
    if (h == &quarry_thread_stack && !h->top)
        qy_fatal(QY_FAULT_NO_FRAME, NULL, "%s without a t_scope", seal ? "seal" : "unseal");
    if (!seal == !(h->top & QY_STACK_SEALED))
        qy_fatal(QY_FAULT_SEALED_FRAME, (void *)qy_stack_frame(h->top),
            seal ? "sealed twice" : "unsealed, and was not sealed");
    // The base of a stack has no end that could look.
    uintptr_t marks = qy_stack_frame(h->top) ? QY_STACK_LOOK | QY_STACK_OPENER : 0;
    qy_stack_set_top(h, seal ? h->top | QY_STACK_SEALED | marks : h->top & ~QY_STACK_SEALED);
    if (s) set_limit(s, false);
}

void quarry_stack_seal(quarry_pool_t *pool) { quarry_stack_seal_slow(quarry_stack_hot_of(pool), 1); }
void quarry_stack_unseal(quarry_pool_t *pool) { quarry_stack_seal_slow(quarry_stack_hot_of(pool), 0); }

void quarry_stack_reset(quarry_pool_t *pool) {
    stack_must_own(stack_of(pool));
    // If limit is closed, the next allocation opens it, for its frame.
    qy_stack_put_idle(stack_of(pool), 0);
}

// ---- looking -------------------------------------------------------------------------------------------

static void stack_stats(quarry_pool_t *pool, quarry_pool_stats_t *stats) {
    qy_stack_t *s = stack_of(pool);
    char *start = atomic_load_explicit(&s->start, memory_order_relaxed);
    char *pos = __atomic_load_n(&s->open.hot->pos, __ATOMIC_RELAXED);
    if (s->fixed) stats->held_bytes = stats->peak_held_bytes = s->buffer_bytes;
    // Read a moment apart by another thread, they may be of different chunks.
    size_t now = pos >= start && (size_t)(pos - start) <= stats->held_bytes ? (size_t)(pos - start) : 0;
    stats->used_bytes = atomic_load_explicit(&s->used_before, memory_order_relaxed) + now;
}

// Records of skipped frames, which a thread's stack may have, must not be looked at.
static const char *stack_check_frames(qy_stack_t *s) {
    qy_stack_chunk_t *c = s->current;
    const char *end = s->open.hot->pos;
    for (uintptr_t top = s->open.hot->top; qy_stack_frame(top);
         top = ((quarry_stack_frame_t *)qy_stack_frame(top))->prev) {
        const char *pos = ((quarry_stack_frame_t *)qy_stack_frame(top))->pos;
        for (; c && (pos < qy_stack_start(c) || pos > c->end); c = c->prev, end = c ? c->pos : NULL) {}
        if (!c || pos > end) return "a frame that begins outside of what is used";
        end = pos;
    }
    return NULL;
}

static const char *stack_check(quarry_pool_t *pool) {
    qy_stack_t *s = stack_of(pool);
    quarry_stack_hot_t *h = s->open.hot;
    // While frames of before its birth are open, a thread's stack has no position.
    if (h->pos && (h->pos < qy_stack_start(s->current) || h->pos > s->current->end))
        return "a position outside of the current chunk";
    if (h->limit && (h->limit > s->current->clean || h->limit < qy_stack_start(s->current)))
        return "a limit outside of the current chunk";
    const char *wrong = qy_stack_check_chunks(s);
    return wrong || s->thread ? wrong : stack_check_frames(s);
}

// ---- life ------------------------------------------------------------------------------------------------

static void stack_destroy(quarry_pool_t *pool) {
    qy_stack_t *s = stack_of(pool);
    stack_must_own(s);
    qy_pool_retire(pool);
    if (s->thread) qy_stack_thread_forget(s);
    qy_stack_drop_marks(s);
    qy_pool_trace_close(pool);
    qy_observe_close(pool);
    qy_assert_slow(!qy_stack_check_chunks(s));
    qy_stack_put_all(s);
    // Frames that are still open are found by their pop.
    s->open.own = (quarry_stack_hot_t){.stack = &s->open};
    qy_pool_drop(pool);
}

const quarry_pool_ops_t qy_stack_ops = {
    .kind = "stack",
    .capabilities = QUARRY_POOL_FRAMES | QUARRY_POOL_GROWS,
    .max_alignment = QUARRY_STACK_ALIGN_MAX,
    .alloc = stack_alloc,
    .resize = stack_resize,
    .free = stack_free,
    .check = stack_check,
    .stats = stack_stats,
    .destroy = stack_destroy,
    .raw_alloc = stack_raw_alloc,
};

qy_stack_t *qy_stack_new(const quarry_stack_options_t *options, quarry_stack_hot_t *hot) {
    static const quarry_stack_options_t defaults;
    if (!options) options = &defaults;
    if (options->buffer && options->buffer_bytes < QY_STACK_BUFFER_MIN) {
        errno = EINVAL;
        return NULL;
    }
    qy_stack_t *s = qy_pool_new(&qy_stack_ops, sizeof *s, &options->pool);
    if (!s) return NULL;
    s->open.hot = hot ? hot : &s->open.own;
    s->thread = hot != NULL;
    s->owner = qy_os_thread_token();
    s->chunk_bytes = qy_min(qy_max(options->chunk_bytes, QY_CHUNK_MIN), QUARRY_POOL_MAX / 4);
    if (!qy_stack_first_chunk(s, options)) {
        qy_pool_no_memory(&s->open.pool, s->chunk_bytes);
        qy_pool_drop(&s->open.pool);
        return NULL;
    }
    s->open.hot->stack = &s->open;
    // A thread may have frames open by now, whose ends must look: its limit is opened by an allocation.
    if (!hot) set_limit(s, false);
    qy_pool_ready(&s->open.pool);
    return s;
}

quarry_pool_t *quarry_stack_create(const quarry_stack_options_t *options) {
    qy_stack_t *s = qy_stack_new(options, NULL);
    return s ? &s->open.pool : NULL;
}
