// SPDX-License-Identifier: MIT
// persist_trace.c: what the recorder is told of a persistent pool's blocks.
//
// New blocks are told of at once, and freed ones at the commit, when their memory may be used again. A transaction that
// is taken back takes its blocks along: so what it told is kept, and told the other way round. Without memory for that,
// the trace has a block too many. Blocks that were in the file before are not told of; only their ends are.
#include <string.h>

#include "pool/persist.h"
#include "pool/trace.h"

#define MADE UINT64_MAX
#define ROOM_FIRST 64

static bool persist_trace_is_recorded(const quarry_persist_t *s) { return s->pool.mode & QY_MODE_RECORDED; }

static bool persist_trace_more_room(quarry_persist_t *s) {
    size_t room = s->room_for_traced ? 2 * s->room_for_traced : ROOM_FIRST;
    qy_persist_traced_t *traced = qy_pool_meta_alloc(room * sizeof *traced);
    if (!traced) return false;
    if (s->traced) {
        memcpy(traced, s->traced, s->ntraced * sizeof *traced);
        qy_pool_meta_free(s->traced, s->room_for_traced * sizeof *traced);
    }
    s->traced = traced;
    s->room_for_traced = room;
    return true;
}

static void persist_trace_keep(quarry_persist_t *s, uint64_t at, uint64_t size) {
    if (s->ntraced < s->room_for_traced || persist_trace_more_room(s))
        s->traced[s->ntraced++] = (qy_persist_traced_t){at, size};
}

void qy_persist_trace_alloc(quarry_persist_t *s, uint64_t at, size_t size, size_t alignment) {
    if (!persist_trace_is_recorded(s)) return;
    persist_trace_keep(s, at, MADE);
    qy_pool_trace_alloc(&s->pool, size, alignment, s->base + at);
}

void qy_persist_trace_resized(quarry_persist_t *s, uint64_t at, uint64_t had, size_t size) {
    if (!persist_trace_is_recorded(s)) return;
    persist_trace_keep(s, at, had);
    qy_pool_trace_resized(&s->pool, s->base + at, size, s->base + at);
}

void qy_persist_trace_commit(quarry_persist_t *s) {
    for (uint32_t i = 0; i < s->frees; i++) qy_pool_trace_free(&s->pool, s->base + s->freed[i]);
    s->ntraced = 0;
}

void qy_persist_trace_rollback(quarry_persist_t *s, size_t traced) {
    while (s->ntraced > traced) {
        qy_persist_traced_t t = s->traced[--s->ntraced];
        char *p = s->base + t.at;
        if (t.size == MADE) qy_pool_trace_free(&s->pool, p);
        else qy_pool_trace_resized(&s->pool, p, t.size, p);
    }
}
