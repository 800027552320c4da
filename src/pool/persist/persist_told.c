// SPDX-License-Identifier: MIT
// persist_told.c: what the recorder is told of a persistent pool's blocks.
//
// New blocks are told of at once, and freed ones at the commit, when their memory may be used again. A transaction that is
// taken back takes its blocks along: so what it told is kept, and told the other way round. Without memory for that, the trace
// has a block too many. Blocks that were in the file before are not told of; only their ends are.
#include <string.h>

#include "pool/persist.h"
#include "pool/tell.h"

#define MADE UINT64_MAX
#define ROOM_FIRST 64

static bool is_recorded(const quarry_persist_t *s) { return s->pool.mode & QY_MODE_RECORDED; }

static bool more_room(quarry_persist_t *s) {
    size_t room = s->room_for_told ? 2 * s->room_for_told : ROOM_FIRST;
    qy_persist_told_t *told = qy_object_alloc(room * sizeof *told);
    if (!told) return false;
    if (s->told) {
        memcpy(told, s->told, s->ntold * sizeof *told);
        qy_object_free(s->told, s->room_for_told * sizeof *told);
    }
    s->told = told;
    s->room_for_told = room;
    return true;
}

static void keep(quarry_persist_t *s, uint64_t at, uint64_t size) {
    if (s->ntold < s->room_for_told || more_room(s)) s->told[s->ntold++] = (qy_persist_told_t){at, size};
}

void qy_persist_tell_alloc(quarry_persist_t *s, uint64_t at, size_t size, size_t alignment) {
    if (!is_recorded(s)) return;
    keep(s, at, MADE);
    qy_tell_alloc(&s->pool, size, alignment, s->base + at);
}

void qy_persist_tell_resized(quarry_persist_t *s, uint64_t at, uint64_t had, size_t size) {
    if (!is_recorded(s)) return;
    keep(s, at, had);
    qy_tell_resized(&s->pool, s->base + at, size, s->base + at);
}

void qy_persist_tell_commit(quarry_persist_t *s) {
    for (uint32_t i = 0; i < s->frees; i++) qy_tell_free(&s->pool, s->base + s->freed[i]);
    s->ntold = 0;
}

void qy_persist_tell_rollback(quarry_persist_t *s, size_t told) {
    while (s->ntold > told) {
        qy_persist_told_t t = s->told[--s->ntold];
        char *p = s->base + t.at;
        if (t.size == MADE) qy_tell_free(&s->pool, p);
        else qy_tell_resized(&s->pool, p, t.size, p);
    }
}
