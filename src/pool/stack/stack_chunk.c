// SPDX-License-Identifier: MIT
// stack_chunk.c: which chunk a stack fills: search, size, and when idle chunks go back.
//
// Search. The first idle chunk with room is taken. Those found to be too small are given back only until they add up to
// the request: enough to bound what is held, and a single large request does not cost all chunks of a regular load.
// bench/scenarios/worst_case.c compares it with a search that gives back every chunk that it passes.
//
// Size. At least what is asked for and 64 KiB, and 64 times the mean request. The fast path counts nothing, so
// the mean is taken from the requests that do not fit any more. A large one is more likely to be the one that
// does not: a request of n bytes stands for (bytes in the chunk / n) of its kind, which takes that out again.
//
// The edge. A frame that is pushed when a chunk is nearly full, fills the next and is popped, would find the stack
// at the same edge again. So the pop stays in the next chunk if what is left of the old one is little: an eighth, up to
// 64 KiB. The frame below then begins to fill that one; it is asked the same when it is popped, and so on down.
//
// Giving back. What is idle beyond 1 MiB is worth some waiting, in proportion: while the stack waits, limit is closed
// and allocations and ends of frames that take the slow path are ticks. If the chunks are used again, all is well; then
// those go that were idle all the time. A chunk that is needed after some went is a regret, and doubles the wait from
// then on; each time that was not regretted halves it. So a load that comes back to its peak keeps its memory however
// long its period is, up to a point, and one that does not gives it back, in the middle of whatever frame.
#include <stdint.h>
#include <string.h>

#include "base/num.h"
#include "pool/observe.h"
#include "pool/stack.h"

static bool stack_chunk_observed(const qy_stack_t *s) { return s->open.pool.mode & QY_MODE_OBSERVED; }

// ---- the check ------------------------------------------------------------------------------------------

const char *qy_stack_check_chunks(const qy_stack_t *s) {
    size_t used = 0, idle = 0;
    bool before = true;
    for (qy_stack_chunk_t *c = s->first; c; c = c->next) {
        if (c->next && c->next->prev != c) return "chunks whose links do not fit";
        if (c == s->current) before = false;
        else if (before && (c->pos < qy_stack_start(c) || c->pos > c->end))
            return "a chunk that was left at a place outside of it";
        else if (before) used += (size_t)(c->pos - qy_stack_start(c));
        else idle += qy_stack_bytes(c);
        if (c->clean < qy_stack_start(c) || c->clean > c->end) return "fresh memory outside of its chunk";
    }
    if (before) return "a current chunk that is not in the list";
    if (used != s->used_before || idle != s->idle) return "totals that do not fit the chunks";
    return NULL;
}

// Behind each change of which chunk is current or idle.
static void stack_chunk_assert_sound(qy_stack_t *s) {
    const qy_pool_info_t *info = s->open.pool.info;
    qy_assert_walk(&s->open.pool, (size_t)(info->chunk_gets - info->chunk_puts), qy_stack_check_chunks(s));
    (void)info;
}

static void stack_chunk_add_used(qy_stack_t *s, size_t bytes) {
    atomic_store_explicit(
        &s->used_before, atomic_load_explicit(&s->used_before, memory_order_relaxed) + bytes, memory_order_relaxed);
}

static bool stack_chunk_fits(qy_stack_chunk_t *c, const char *from, size_t size, size_t alignment) {
    uintptr_t p = qy_round_up((uintptr_t)from, alignment);
    return p <= (uintptr_t)c->end && size <= (uintptr_t)c->end - p;
}

// ---- from the parent and back -------------------------------------------------------------------------

static qy_stack_chunk_t *make_chunk(void *base, size_t bytes, bool zero) {
    qy_stack_chunk_t *c = qy_ptr_up(base, QY_CACHE_LINE);
    *c = (qy_stack_chunk_t){.end = (char *)base + bytes, .base = base};
    c->pos = qy_stack_start(c);
    c->clean = zero ? qy_stack_start(c) : c->end;
    return c;
}

static qy_stack_chunk_t *stack_chunk_get(qy_stack_t *s, size_t size, size_t alignment) {
    size_t need = size;
    if (alignment > QY_CACHE_LINE && __builtin_add_overflow(need, alignment, &need)) return NULL;
    if (__builtin_add_overflow(need, sizeof(qy_stack_chunk_t) + 2 * QY_CACHE_LINE, &need)) return NULL;
    size_t wish = QY_STACK_MEANS * qy_mean_get(&s->mean);
    // A block that is growing will do so again.
    if (s->growing) wish = qy_max(wish, QY_STACK_GROWTH * qy_min(size, QY_STACK_CHUNK_CAP));
    wish = qy_min(wish, QY_STACK_CHUNK_CAP);
    qy_pool_chunk_t chunk;
    if (!qy_chunk_get(&s->open.pool, need, qy_max(wish, s->chunk_bytes), QY_CACHE_LINE, &chunk)) return NULL;
    qy_stack_chunk_t *c = make_chunk(chunk.base, chunk.bytes, chunk.zero);
    s->got_bytes += chunk.bytes;
    if (s->gone_back) s->regrets = qy_min(s->regrets + 1, QY_STACK_REGRETS_MAX);
    s->gone_back = 0;
    if (stack_chunk_observed(s))
        qy_observe_hide(&s->open.pool, qy_stack_start(c), (size_t)(c->end - qy_stack_start(c)));
    return c;
}

static void stack_chunk_put(qy_stack_t *s, qy_stack_chunk_t *c) {
    if (stack_chunk_observed(s))
        qy_observe_show(&s->open.pool, qy_stack_start(c), (size_t)(c->end - qy_stack_start(c)));
    qy_observe_reused_all(&s->open.pool, qy_stack_start(c), (size_t)(c->end - qy_stack_start(c)));
    if (!s->fixed) qy_chunk_put(&s->open.pool, c->base, qy_stack_bytes(c));
}

static void link_behind(qy_stack_chunk_t *c, qy_stack_chunk_t *before) {
    c->prev = before;
    c->next = before->next;
    if (c->next) c->next->prev = c;
    before->next = c;
}

static void unlink_chunk(qy_stack_chunk_t *c) {
    c->prev->next = c->next;
    if (c->next) c->next->prev = c->prev;
}

// c is idle no more.
static void stack_chunk_take_out(qy_stack_t *s, qy_stack_chunk_t *c) {
    qy_assert(s->idle >= qy_stack_bytes(c) && c != s->current);
    unlink_chunk(c);
    s->idle -= qy_stack_bytes(c);
    s->idle_low = qy_min(s->idle_low, s->idle);
}

static void put_one(qy_stack_t *s, qy_stack_chunk_t *c) {
    stack_chunk_take_out(s, c);
    stack_chunk_put(s, c);
}

static void stack_chunk_make_current(qy_stack_t *s, qy_stack_chunk_t *c, char *pos) {
    s->current = c;
    atomic_store_explicit(&s->start, qy_stack_start(c), memory_order_relaxed);
    qy_stack_set_pos(s->open.hot, pos);
}

bool qy_stack_first_chunk(qy_stack_t *s, const quarry_stack_options_t *options) {
    s->mean = QY_MEAN_INIT;
    if (options->buffer) {
        s->fixed = true;
        s->buffer_bytes = options->buffer_bytes;
        s->first = make_chunk(options->buffer, options->buffer_bytes, false);
        if (stack_chunk_observed(s))
            qy_observe_hide(
                &s->open.pool, qy_stack_start(s->first), (size_t)(s->first->end - qy_stack_start(s->first)));
    } else {
        s->first = stack_chunk_get(s, 1, 1);
    }
    if (s->first) stack_chunk_make_current(s, s->first, qy_stack_start(s->first));
    return s->first != NULL;
}

// ---- forward ------------------------------------------------------------------------------------------

static void stack_chunk_learn(qy_stack_t *s, size_t size) {
    size_t filled = (size_t)(s->open.hot->pos - qy_stack_start(s->current));
    qy_mean_add_many(&s->mean, size, qy_max(filled / size, 1));
}

static qy_stack_chunk_t *stack_chunk_search(qy_stack_t *s, size_t size, size_t alignment) {
    size_t put = 0;
    for (qy_stack_chunk_t *c = s->current->next, *next; c; c = next) {
        next = c->next;
        if (stack_chunk_fits(c, qy_stack_start(c), size, alignment)) return c;
        if (put >= size) continue;
        put += qy_stack_bytes(c);
        put_one(s, c);
    }
    return NULL;
}

static bool turn(qy_stack_t *s, size_t size, size_t alignment) {
    if (s->fixed) return false;
    stack_chunk_learn(s, size);
    qy_stack_chunk_t *old = s->current, *c = stack_chunk_search(s, size, alignment);
    if (c) {
        stack_chunk_take_out(s, c);
    } else {
        c = stack_chunk_get(s, size, alignment);
        if (!c) return false;
    }
    link_behind(c, old);
    old->pos = s->open.hot->pos;
    stack_chunk_add_used(s, (size_t)(old->pos - qy_stack_start(old)));
    stack_chunk_make_current(s, c, qy_stack_start(c));
    stack_chunk_assert_sound(s);
    return true;
}

char *qy_stack_reach(qy_stack_t *s, char *pos) {
    qy_stack_chunk_t *c = s->current;
    char *clean = c->clean;
    qy_assert(pos >= qy_stack_start(c) && pos <= c->end);
    qy_stack_set_pos(s->open.hot, pos);
    if (pos > clean) {
        // What a large block leaves is as fresh as it was. Small ones are many, and the next shall be fast.
        size_t more = (size_t)(pos - clean) < QY_STACK_STEP ? QY_STACK_STEP : 0;
        c->clean = pos + qy_min(more, (size_t)(c->end - pos));
    }
    return clean;
}

void *qy_stack_take(qy_stack_t *s, size_t size, size_t alignment, char **ret_clean) {
    quarry_stack_hot_t *h = s->open.hot;
    qy_assert(size > 0);
    if (!h->pos) qy_stack_set_pos(h, qy_stack_start(s->first));  // as frames of before the stack's birth have it
    if (!stack_chunk_fits(s->current, h->pos, size, alignment)) {
        atomic_store_explicit(&s->busy, true, memory_order_release);
        bool turned = turn(s, size, alignment);
        atomic_store_explicit(&s->busy, false, memory_order_release);
        if (!turned) return NULL;
    }
    char *p = qy_ptr_up(h->pos, alignment);
    *ret_clean = qy_stack_reach(s, p + size);
    return p;
}

void qy_stack_shorten(qy_stack_t *s, qy_stack_chunk_t *c, char *pos) {
    qy_assert(pos >= qy_stack_start(c) && pos <= c->pos);
    stack_chunk_add_used(s, -(size_t)(c->pos - pos));
    c->pos = pos;
    stack_chunk_assert_sound(s);
}

// ---- back ---------------------------------------------------------------------------------------------

static bool holds(qy_stack_chunk_t *c, const char *pos) { return pos >= qy_stack_start(c) && pos <= c->end; }

static void wait_to_put(qy_stack_t *s) {
    size_t ticks =
        qy_min(qy_max((s->idle - QY_STACK_SPARE) / QY_STACK_TICK_BYTES, QY_STACK_PATIENCE_MIN), QY_STACK_PATIENCE_MAX);
    s->ticks = (unsigned)ticks << s->regrets;
    s->idle_low = s->idle;
}

bool qy_stack_go_back(qy_stack_t *s, char *pos) {
    qy_stack_chunk_t *c = s->current, *behind = NULL;
    // NULL: pushed in a thread that had no stack yet.
    for (; pos ? !holds(c, pos) : c != s->first; behind = c, c = c->prev) {
        if (c == s->first)
            qy_fatal(QY_FAULT_DAMAGED_POOL, s, "a frame of stack \"%s\" begins at %p, outside of its chunks",
                s->open.pool.info->name, (void *)pos);
        s->idle += qy_stack_bytes(c);
        stack_chunk_add_used(s, -(size_t)(c->prev->pos - qy_stack_start(c->prev)));
    }
    if (!pos) pos = qy_stack_start(c);
    bool stay = false;
    size_t rest = (size_t)(c->end - pos);
    if (behind && rest < qy_min(qy_stack_bytes(c) / QY_STACK_EDGE, QY_STACK_EDGE_MAX)) {
        stay = true;
        c->pos = pos;
        stack_chunk_add_used(s, (size_t)(pos - qy_stack_start(c)));
        s->idle -= qy_stack_bytes(behind);
        s->idle_low = qy_min(s->idle_low, s->idle);
        c = behind;
        pos = qy_stack_start(c);
    }
    stack_chunk_make_current(s, c, pos);
    if (behind && s->idle > QY_STACK_SPARE && !s->ticks) wait_to_put(s);
    qy_assert(holds(s->current, s->open.hot->pos));
    stack_chunk_assert_sound(s);
    return stay;
}

void qy_stack_put_idle(qy_stack_t *s, size_t keep) {
    size_t kept = 0;
    atomic_store_explicit(&s->busy, true, memory_order_release);
    for (qy_stack_chunk_t *c = s->current->next, *next; c; c = next) {
        next = c->next;
        if (qy_stack_bytes(c) <= keep - kept) kept += qy_stack_bytes(c);
        else put_one(s, c);
    }
    atomic_store_explicit(&s->busy, false, memory_order_release);
    s->ticks = 0;
    qy_assert(s->idle <= keep);
    stack_chunk_assert_sound(s);
}

bool qy_stack_tick(qy_stack_t *s) {
    if (!s->ticks) return false;
    if (s->idle_low <= QY_STACK_SPARE) {  // it was used meanwhile
        s->ticks = 0;
        return false;
    }
    if (--s->ticks) return true;
    if (s->gone_back && s->regrets) s->regrets--;
    // What was idle all the time.
    size_t bytes = s->idle_low - QY_STACK_SPARE;
    s->gone_back = bytes;
    qy_stack_put_idle(s, s->idle - bytes);
    return false;
}

void qy_stack_put_all(qy_stack_t *s) {
    for (qy_stack_chunk_t *c = s->first, *next; c; c = next) {
        next = c->next;
        stack_chunk_put(s, c);
    }
    s->first = s->current = NULL;
}
