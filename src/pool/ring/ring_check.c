// SPDX-License-Identifier: MIT
// ring_check.c: the invariants of a ring: its chunks, and the frames that began in each. For its owner.
#include "pool/ring.h"

#define CHUNK(l) QY_LIST_ITEM(l, qy_ring_chunk_t, link)

static const char *ring_check_frames(const qy_ring_t *r, qy_ring_chunk_t *c) {
    qy_ring_frame_t **last = &c->first;
    for (; *last; last = &(*last)->next) {
        unsigned state = QY_FRAME_STATE(atomic_load_explicit(&(*last)->word, memory_order_relaxed));
        if ((*last)->ring != r || state == QY_FRAME_FREE || state > QY_FRAME_RELEASED)
            return "a frame in a wrong state";
        if (state == QY_FRAME_OPEN && *last != r->open) return "two open frames";
    }
    return last == c->last ? NULL : "a chunk whose list of frames has another end";
}

static const char *ring_check_left(const qy_ring_t *r, qy_ring_chunk_t *c) {
    if (c->pos < qy_ring_start(c) || c->pos > c->end) return "a chunk that was left at a place outside of it";
    if (c->dirty < c->pos || c->dirty > c->end) return "a chunk whose mark of dirt lies elsewhere";
    return ring_check_frames(r, c);
}

static const char *ring_check_current(const qy_ring_t *r) {
    const char *pos = qy_ring_pos(r);
    if (pos < qy_ring_start(r->current) || pos > r->end || r->end != r->current->end)
        return "a position outside of the current chunk";
    if (r->dirty > r->end || r->hot.clean > r->end) return "a mark outside of the current chunk";
    return ring_check_frames(r, r->current);
}

// The chunks that the open frame has taken are those in use, and no others.
static const char *check_taken(const qy_ring_t *r) {
    size_t taken = 0;
    for (const qy_ring_chunk_t *c = r->open ? r->newest : NULL; c; c = c->older)
        if (++taken > r->nleft + 1) return "the open frame has taken more chunks than there are";
    return NULL;
}

const char *qy_ring_check_chunks(qy_ring_t *r) {
    size_t left = 0, used = 0, free_chunks = 0;
    QY_LIST_EACH(l, &r->left) {
        const char *wrong = ring_check_left(r, CHUNK(l));
        if (wrong) return wrong;
        left++;
        used += (size_t)(CHUNK(l)->pos - qy_ring_start(CHUNK(l)));
    }
    QY_LIST_EACH(l, &r->free)
        free_chunks += CHUNK(l)->first == NULL;
    if (left != r->nleft || used != atomic_load_explicit(&r->used_left, memory_order_relaxed) ||
        free_chunks != r->nfree)
        return "totals that do not fit the chunks";
    const char *wrong = ring_check_current(r);
    return wrong ? wrong : check_taken(r);
}

// What is promised to be zero. A checked ring's free memory must not be read.
static const char *ring_check_clean(const qy_ring_t *r) {
    if (r->hot.pool.mode & QY_MODE_OBSERVED) return NULL;
    for (const char *c = qy_ring_pos(r); c < r->hot.clean; c++)
        if (*c) return "free memory that was written to";
    return NULL;
}

const char *qy_ring_check(quarry_pool_t *pool) {
    qy_ring_t *r = (qy_ring_t *)pool;
    const char *wrong = qy_ring_check_chunks(r);
    return wrong ? wrong : ring_check_clean(r);
}
