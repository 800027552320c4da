// SPDX-License-Identifier: MIT
// ring_chunk.c: which chunk a ring fills next, and which it gives back.
//
// `left` has the chunks in the order in which they were left. Frames end mostly in order, so the oldest are looked at
// first; a cursor that goes round finds those that became empty behind a frame that lives long. Each time a
// chunk is needed a few are looked at, so the work is bounded, and chunks are found faster than they are used up.
//
// What the ring holds follows what it needs: in every period of 256 frames the fewest chunks that were free at any
// moment are those nobody would have missed; half of them go back.
#include <string.h>

#include "base/num.h"
#include "os/os.h"
#include "pool/observe.h"
#include "pool/ring.h"

#define CHUNK(l) QY_LIST_ITEM(l, qy_ring_chunk_t, link)
#define LOOK_AT_FREE 16  // free chunks that may be too small for a request

// Behind each change of the lists. A chunk has some frames, which are walked as well.
static void ring_chunk_assert_sound(qy_ring_t *r) {
    qy_assert_walk(&r->hot.pool, 16 * (r->nleft + r->nfree), qy_ring_check_chunks(r));
}

// ---- from the parent and back ----------------------------------------------------------------------

static qy_ring_chunk_t *ring_chunk_get(qy_ring_t *r, size_t room, size_t alignment, bool own) {
    size_t need;
    if (__builtin_add_overflow(room, sizeof(qy_ring_chunk_t) + 2 * QY_CACHE_LINE + alignment, &need)) return NULL;
    size_t held = atomic_load_explicit(&r->hot.pool.info->held, memory_order_relaxed);
    size_t grown = qy_min(held / 16, QY_RING_CHUNK_MAX), want = r->chunk_bytes;
    while (want * 2 <= grown) want *= 2;
    qy_pool_chunk_t chunk;
    if (!qy_chunk_get(&r->hot.pool, need, own ? need : want, QY_CACHE_LINE, &chunk)) return NULL;
    qy_ring_chunk_t *c = qy_ptr_up(chunk.base, QY_CACHE_LINE);
    if (!chunk.zero) memset(c, 0, sizeof *c);
    qy_list_init(&c->link);
    c->base = chunk.base;
    c->bytes = chunk.bytes;
    c->end = (char *)qy_round_down((uintptr_t)chunk.base + chunk.bytes, QY_CACHE_LINE);
    c->dirty = chunk.zero ? qy_ring_start(c) : c->end;
    c->last = &c->first;
    if (r->hot.pool.mode & QY_MODE_OBSERVED)
        qy_observe_hide(&r->hot.pool, qy_ring_start(c), (size_t)(c->end - qy_ring_start(c)));
    return c;
}

static void ring_chunk_put(qy_ring_t *r, qy_ring_chunk_t *c) {
    if (r->hot.pool.mode & QY_MODE_OBSERVED)
        qy_observe_show(&r->hot.pool, qy_ring_start(c), (size_t)(c->end - qy_ring_start(c)));
    qy_observe_reused_all(&r->hot.pool, qy_ring_start(c), (size_t)(c->end - qy_ring_start(c)));
    qy_chunk_put(&r->hot.pool, c->base, c->bytes);
}

// ---- left and free -----------------------------------------------------------------------------------

static void ring_chunk_add_used(qy_ring_t *r, size_t bytes) {
    atomic_store_explicit(
        &r->used_left, atomic_load_explicit(&r->used_left, memory_order_relaxed) + bytes, memory_order_relaxed);
}

static void push_left(qy_ring_t *r, qy_ring_chunk_t *c, char *pos) {
    qy_assert(pos >= qy_ring_start(c) && pos <= c->end);
    c->pos = pos;
    if (c->dirty < pos) c->dirty = pos;
    qy_list_push_back(&r->left, &c->link);
    r->nleft++;
    ring_chunk_add_used(r, (size_t)(pos - qy_ring_start(c)));
    qy_bump(&r->bytes_left, (uint64_t)(pos - qy_ring_start(c)));
}

static void remove_left(qy_ring_t *r, qy_ring_chunk_t *c) {
    qy_assert(r->nleft && c != r->current);
    if (r->cursor == &c->link) r->cursor = c->link.next;
    qy_list_remove(&c->link);
    r->nleft--;
    ring_chunk_add_used(r, -(size_t)(c->pos - qy_ring_start(c)));
}

static void push_free(qy_ring_t *r, qy_ring_chunk_t *c) {
    qy_assert(!c->first);  // no frame lives there
    c->carried = 0;
    qy_list_push_front(&r->free, &c->link);
    r->nfree++;
}

static void remove_free(qy_ring_t *r, qy_ring_chunk_t *c) {
    qy_assert(r->nfree);
    qy_list_remove(&c->link);
    r->nfree--;
    r->free_low = qy_min(r->free_low, r->nfree);
}

// Are all frames of this chunk released? Records of those that are become free.
static bool ring_chunk_is_empty(qy_ring_t *r, qy_ring_chunk_t *c) {
    qy_ring_frame_t *f;
    while ((f = c->first) != NULL &&
           QY_FRAME_STATE(atomic_load_explicit(&f->word, memory_order_acquire)) == QY_FRAME_RELEASED) {
        c->first = f->next;
        f->next = r->free_frames;
        r->free_frames = f;
    }
    if (c->first) return false;
    c->last = &c->first;
    return !qy_frame_lives(c->carried);
}

// Look at c, in `left`. True: it was empty and is free now.
static bool ring_chunk_look(qy_ring_t *r, qy_ring_chunk_t *c) {
    if (!ring_chunk_is_empty(r, c)) return false;
    remove_left(r, c);
    push_free(r, c);
    return true;
}

static void look_around(qy_ring_t *r, unsigned front, unsigned on) {
    while (front-- && !qy_list_empty(&r->left) && ring_chunk_look(r, CHUNK(r->left.next))) {}
    for (; on-- && !qy_list_empty(&r->left);) {
        if (r->cursor == &r->left) r->cursor = r->left.next;
        qy_ring_chunk_t *c = CHUNK(r->cursor);
        r->cursor = r->cursor->next;
        ring_chunk_look(r, c);
    }
}

// A free chunk with room for the request, NULL if none is at hand. `own`: for one block, so it should not be much
// larger.
static qy_ring_chunk_t *find_free(qy_ring_t *r, size_t size, size_t alignment, bool own) {
    unsigned looked = 0;
    QY_LIST_EACH(l, &r->free) {
        qy_ring_chunk_t *c = CHUNK(l);
        char *p = qy_ptr_up(qy_ring_start(c), alignment);
        if (p <= c->end && size <= (size_t)(c->end - p) && (!own || size >= c->bytes / 4)) {
            remove_free(r, c);
            return c;
        }
        if (++looked == LOOK_AT_FREE) break;
    }
    return NULL;
}

// ---- the current chunk ---------------------------------------------------------------------------------

// c is filled next, from pos on; what lies beyond pos may be dirty up to c->dirty.
static void ring_chunk_make_current(qy_ring_t *r, qy_ring_chunk_t *c, char *pos) {
    qy_assert(pos >= qy_ring_start(c) && pos <= c->end);
    r->current = c;
    r->end = c->end;
    r->dirty = c->dirty;
    r->hot.clean = c->dirty > pos ? pos : c->end;
    atomic_store_explicit(&r->current_start, qy_ring_start(c), memory_order_relaxed);
    qy_ring_set_pos(r, pos);
    if (qy_ring_plain(r)) r->hot.limit = c->end;
}

bool qy_ring_first_chunk(qy_ring_t *r) {
    qy_list_init(&r->left);
    qy_list_init(&r->free);
    r->cursor = &r->left;
    qy_ring_chunk_t *c = ring_chunk_get(r, 0, 1, false);
    if (c) ring_chunk_make_current(r, c, qy_ring_start(c));
    return c != NULL;
}

bool qy_ring_turn(qy_ring_t *r, size_t size, size_t alignment, char **ret_block, char **ret_dirty) {
    *ret_block = NULL;
    qy_assert(r->open);
    look_around(r, QY_RING_LOOK_FRONT, QY_RING_LOOK_ON);
    // A large block gets a chunk of its own, so that the rest of the current one is not lost for it.
    bool own = size > (size_t)(r->end - qy_ring_start(r->current)) / 2;
    qy_ring_chunk_t *c = find_free(r, size, alignment, own);
    if (c) qy_observe_reused_all(&r->hot.pool, qy_ring_start(c), (size_t)(c->end - qy_ring_start(c)));
    else c = ring_chunk_get(r, size, alignment, own);
    if (!c) return false;
    c->carried = qy_frame_number(r->open);
    c->older = r->newest;
    r->newest = c;
    if (own) {
        char *p = qy_ptr_up(qy_ring_start(c), alignment);
        *ret_block = p;
        *ret_dirty = c->dirty;
        push_left(r, c, p + size);
        ring_chunk_assert_sound(r);
        return true;
    }
    qy_ring_chunk_t *old = r->current;
    old->dirty = r->dirty;
    push_left(r, old, qy_ring_pos(r));
    ring_chunk_make_current(r, c, qy_ring_start(c));
    ring_chunk_assert_sound(r);
    return true;
}

void qy_ring_untake(qy_ring_t *r, qy_ring_chunk_t *newest, qy_ring_chunk_t *current, char *pos) {
    char *now = qy_ring_pos(r);
    r->current->dirty = r->dirty > now ? r->dirty : now;
    while (r->newest != newest) {
        qy_ring_chunk_t *c = r->newest;
        r->newest = c->older;
        if (c != r->current) remove_left(r, c);
        push_free(r, c);
    }
    if (current != r->current) remove_left(r, current);
    ring_chunk_make_current(r, current, pos);
    ring_chunk_assert_sound(r);
}

// ---- giving back ---------------------------------------------------------------------------------------

static void put_free(qy_ring_t *r, size_t count) {
    while (count-- && !qy_list_empty(&r->free)) {
        qy_ring_chunk_t *c = CHUNK(r->free.prev);  // the one that has not been used for longest
        remove_free(r, c);
        ring_chunk_put(r, c);
    }
    r->free_low = r->nfree;
}

void qy_ring_recall(qy_ring_t *r) {
    ring_chunk_is_empty(r, r->current);
    if (!r->free_frames) look_around(r, QY_RING_LOOK_FRONT, QY_RING_LOOK_ON);
}

void qy_ring_period(qy_ring_t *r) {
    size_t unneeded = r->free_low;
    ring_chunk_is_empty(r, r->current);
    look_around(r, 16, 64);
    put_free(r, (unneeded + 1) / 2);
    ring_chunk_assert_sound(r);
}

void qy_ring_give_back(qy_ring_t *r) {
    QY_LIST_EACH(l, &r->left)
        ring_chunk_look(r, CHUNK(l));
    ring_chunk_is_empty(r, r->current);  // for its records
    put_free(r, r->nfree);
    ring_chunk_assert_sound(r);
}

static void put_frames(qy_ring_t *r, qy_ring_chunk_t *c) {
    *c->last = r->free_frames;
    r->free_frames = c->first;
}

void qy_ring_put_all(qy_ring_t *r) {
    qy_list_t *l;
    put_frames(r, r->current);
    QY_LIST_EACH(at, &r->left)
        put_frames(r, CHUNK(at));
    qy_frames_put(r->free_frames);
    while ((l = qy_list_pop_front(&r->left)) != NULL) ring_chunk_put(r, CHUNK(l));
    put_free(r, r->nfree);
    ring_chunk_put(r, r->current);
    atomic_store_explicit(&r->used_left, 0, memory_order_relaxed);
    atomic_store_explicit(&r->current_start, NULL, memory_order_relaxed);
}
