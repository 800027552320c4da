// SPDX-License-Identifier: MIT
// ring_told.c: what the recorder is told of the blocks in a ring.
//
// They end with their frame, which is told once, or by a rewind. For that the blocks of the open frame are kept in a list:
// a mark is a place, and which blocks lie behind it can be asked of their addresses. Without memory for the list a rewind is
// not told: its blocks end with the frame, in the trace.
#include <string.h>

#include "base/num.h"
#include "pool/ring.h"
#include "pool/tell.h"

#define ROOM_FIRST 64

static bool is_kept(const qy_ring_t *r) { return (r->hot.pool.mode & QY_MODE_RECORDED) && !(r->hot.pool.mode & QY_MODE_OBSERVED); }

static bool more_room(qy_ring_t *r) {
    size_t room = r->room_for_told ? 2 * r->room_for_told : ROOM_FIRST;
    char **told = qy_object_alloc(room * sizeof *told);
    if (!told) return false;
    if (r->told) {
        memcpy(told, r->told, r->ntold * sizeof *told);
        qy_object_free(r->told, r->room_for_told * sizeof *told);
    }
    r->told = told;
    r->room_for_told = room;
    return true;
}

static void keep(qy_ring_t *r, char *p) {
    if (r->ntold < r->room_for_told || more_room(r)) r->told[r->ntold++] = p;
}

void *qy_ring_tell_alloc(qy_ring_t *r, size_t size, size_t alignment, char *p) {
    if (is_kept(r)) keep(r, p);
    return qy_tell_alloc(&r->hot.pool, size, alignment, p);
}

// A block that moves is as new as its new place. Mostly it was the newest before.
void *qy_ring_tell_resized(qy_ring_t *r, char *old, size_t size, char *p) {
    if (is_kept(r) && p && p != old) {
        size_t i = r->ntold;
        while (i && r->told[i - 1] != old) i--;
        if (i) r->told[i - 1] = NULL;
        keep(r, p);
    }
    return qy_tell_resized(&r->hot.pool, old, size, p);
}

static bool is_behind(const qy_ring_t *r, const quarry_ring_mark_t *mark, const char *p) {
    const qy_ring_chunk_t *in = mark->chunk;
    if (p >= mark->pos && p < in->end) return true;
    for (const qy_ring_chunk_t *c = r->newest; c && c != mark->newest; c = c->older)
        if (p >= (const char *)(c + 1) && p < c->end) return true;
    return false;
}

void qy_ring_tell_rewind(qy_ring_t *r, const quarry_ring_mark_t *mark) {
    while (r->ntold) {
        char *p = r->told[r->ntold - 1];
        if (p && !is_behind(r, mark, p)) return;
        qy_tell_free(&r->hot.pool, p);
        r->ntold--;
    }
}

void qy_ring_drop_told(qy_ring_t *r) {
    if (r->told) qy_object_free(r->told, r->room_for_told * sizeof *r->told);
    r->told = NULL;
    r->ntold = r->room_for_told = 0;
}
