// SPDX-License-Identifier: MIT
// persist_trace.c: what the recorder and a checker are told of a persistent pool's blocks.
//
// New blocks are told of at once, and freed ones at the commit, when their memory may be used again. A transaction that
// is taken back takes its blocks along: so what it told is kept, and told the other way round. Without memory for that,
// the trace has a block too many. The recorder is told of blocks that were in the file before only when they end.
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

static void persist_trace_keep(quarry_persist_t *s, qy_persist_traced_t t) {
    if (s->ntraced < s->room_for_traced || persist_trace_more_room(s)) s->traced[s->ntraced++] = t;
}

void qy_persist_trace_alloc(
    quarry_persist_t *s, const qy_stack_regs_t *caller, uint64_t at, size_t size, size_t alignment, bool zero) {
    if (!qy_persist_is_told(s)) return;
    persist_trace_keep(s, (qy_persist_traced_t){at, MADE, {0, false}});
    if (persist_trace_is_recorded(s)) qy_pool_trace_alloc(&s->pool, size, alignment, s->base + at);
    if (s->watch) qy_persist_watch_made(s, at, size, zero, caller);
}

void qy_persist_trace_resized(quarry_persist_t *s, uint64_t at, uint64_t had, size_t size, bool zero) {
    qy_persist_traced_t t = {at, had, {had, false}};
    if (!qy_persist_is_told(s)) return;
    qy_persist_watch_asked(s, at, &t.asked);
    persist_trace_keep(s, t);
    if (persist_trace_is_recorded(s)) qy_pool_trace_resized(&s->pool, s->base + at, size, s->base + at);
    if (s->watch) qy_persist_watch_resized(s, at, size, zero);
}

void qy_persist_trace_commit(quarry_persist_t *s) {
    if (!persist_trace_is_recorded(s)) return;
    for (uint32_t i = 0; i < s->frees; i++) qy_pool_trace_free(&s->pool, s->base + s->freed[i]);
}

// Entries above ntraced are what they were. A step of a transaction that goes on may have blocks that an earlier one
// made shorter, and what lay behind them comes back if that is taken back, too.
void qy_persist_trace_rolled_back(quarry_persist_t *s, size_t more) {
    if (s->ntraced) return;
    for (size_t i = s->ntraced; s->watch && i < more; i++)
        if (s->traced[i].size != MADE) qy_persist_watch_resettle(s, s->traced[i].at);
}

void qy_persist_trace_committed(quarry_persist_t *s, uint32_t frees) {
    for (uint32_t i = 0; s->watch && i < frees; i++) qy_persist_watch_ended(s, s->freed[i]);
    size_t more = s->ntraced;
    s->ntraced = 0;
    qy_persist_trace_rolled_back(s, more);
}

static void persist_trace_undo(quarry_persist_t *s, qy_persist_traced_t t) {
    char *p = s->base + t.at;
    bool made = t.size == MADE;
    if (persist_trace_is_recorded(s) && made) qy_pool_trace_free(&s->pool, p);
    else if (persist_trace_is_recorded(s)) qy_pool_trace_resized(&s->pool, p, t.size, p);
    if (s->watch && made) qy_persist_watch_unmade(s, t.at);
    else if (s->watch) qy_persist_watch_unsized(s, t.at, t.size + 8, t.asked);
}

void qy_persist_trace_rollback(quarry_persist_t *s, size_t traced) {
    while (s->ntraced > traced) persist_trace_undo(s, s->traced[--s->ntraced]);
}
