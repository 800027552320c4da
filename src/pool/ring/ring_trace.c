// SPDX-License-Identifier: MIT
// ring_trace.c: what the recorder is told of the blocks in a ring.
//
// They end with their frame, which is told once, or by a rewind. For that the blocks of the open frame are kept in a
// list: a mark is a place, and which blocks lie behind it can be asked of their addresses. Without memory for the list
// a rewind is not told: its blocks end with the frame, in the trace.
#include <string.h>

#include "base/num.h"
#include "pool/ring.h"
#include "pool/trace.h"

#define ROOM_FIRST 64

static bool is_kept(const qy_ring_t *r) {
    return (r->hot.pool.mode & QY_MODE_RECORDED) && !(r->hot.pool.mode & QY_MODE_OBSERVED);
}

static bool ring_trace_more_room(qy_ring_t *r) {
    size_t room = r->room_for_traced ? 2 * r->room_for_traced : ROOM_FIRST;
    char **traced = qy_pool_meta_alloc(room * sizeof *traced);
    if (!traced) return false;
    if (r->traced) {
        memcpy(traced, r->traced, r->ntraced * sizeof *traced);
        qy_pool_meta_free(r->traced, r->room_for_traced * sizeof *traced);
    }
    r->traced = traced;
    r->room_for_traced = room;
    return true;
}

static void ring_trace_keep(qy_ring_t *r, char *p) {
    if (r->ntraced < r->room_for_traced || ring_trace_more_room(r)) r->traced[r->ntraced++] = p;
}

void *qy_ring_trace_alloc(qy_ring_t *r, size_t size, size_t alignment, char *p) {
    if (is_kept(r)) ring_trace_keep(r, p);
    return qy_pool_trace_alloc(&r->hot.pool, size, alignment, p);
}

// A block that moves is as new as its new place. Mostly it was the newest before.
void *qy_ring_trace_resized(qy_ring_t *r, char *old, size_t size, char *p) {
    if (is_kept(r) && p && p != old) {
        size_t i = r->ntraced;
        while (i && r->traced[i - 1] != old) i--;
        if (i) r->traced[i - 1] = NULL;
        ring_trace_keep(r, p);
    }
    return qy_pool_trace_resized(&r->hot.pool, old, size, p);
}

static bool is_behind(const qy_ring_t *r, const quarry_ring_mark_t *mark, const char *p) {
    const qy_ring_chunk_t *in = mark->chunk;
    if (p >= mark->pos && p < in->end) return true;
    for (const qy_ring_chunk_t *c = r->newest; c && c != mark->newest; c = c->older)
        if (p >= (const char *)(c + 1) && p < c->end) return true;
    return false;
}

void qy_ring_trace_rewind(qy_ring_t *r, const quarry_ring_mark_t *mark) {
    while (r->ntraced) {
        char *p = r->traced[r->ntraced - 1];
        if (p && !is_behind(r, mark, p)) return;
        qy_pool_trace_free(&r->hot.pool, p);
        r->ntraced--;
    }
}

void qy_ring_trace_drop(qy_ring_t *r) {
    if (r->traced) qy_pool_meta_free(r->traced, r->room_for_traced * sizeof *r->traced);
    r->traced = NULL;
    r->ntraced = r->room_for_traced = 0;
}
