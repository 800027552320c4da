// SPDX-License-Identifier: MIT
// stack_observe.c: which blocks of a checked or recorded stack end with which frame.
//
// A frame has no room for a number, and most have no block: so a frame gets one with its first block. Numbers grow,
// and a frame inside of another has the higher one, so that a frame's end is the end of all groups from its own on.
// Pushes and most pops are inline and not seen; so the recorder is told of those frames alone that have a block: their
// beginning with the first one, and each of them ends.
#include <string.h>

#include "pool/observe.h"
#include "pool/reused.h"
#include "pool/stack.h"
#include "pool/trace.h"

static bool more_marks(qy_stack_t *s) {
    size_t room = s->room_for_marks ? 2 * s->room_for_marks : 32;
    qy_stack_mark_t *marks = qy_pool_meta_alloc(room * sizeof *marks);
    if (!marks) return false;
    if (s->marks) {
        memcpy(marks, s->marks, s->nmarks * sizeof *marks);
        qy_pool_meta_free(s->marks, s->room_for_marks * sizeof *marks);
    }
    s->marks = marks;
    s->room_for_marks = room;
    return true;
}

uint64_t qy_stack_group(qy_stack_t *s) {
    uintptr_t top = s->open.hot->top, frame = qy_stack_frame(top);
    if (!frame) return 0;
    if ((top & QY_STACK_LOOK) && s->nmarks && s->marks[s->nmarks - 1].frame == frame)
        return s->marks[s->nmarks - 1].group;
    if (s->nmarks == s->room_for_marks && !more_marks(s)) return UINT64_MAX;
    qy_assert(!s->nmarks || s->marks[s->nmarks - 1].group <= s->groups);
    s->marks[s->nmarks++] = (qy_stack_mark_t){frame, ++s->groups};
    if (QY_UNLIKELY(s->open.pool.mode & QY_MODE_RECORDED)) qy_pool_trace_pushed(&s->open.pool);
    return s->groups;
}

// The last mark's frame ends.
QY_INLINE uint64_t stack_drop_mark(qy_stack_t *s) {
    if (QY_UNLIKELY(s->open.pool.mode & QY_MODE_RECORDED)) qy_pool_trace_popped(&s->open.pool);
    return s->marks[--s->nmarks].group;
}

void qy_stack_end_group(qy_stack_t *s, const qy_stack_regs_t *caller, uintptr_t frame, bool skipped) {
    uint64_t lowest = UINT64_MAX;
    if (QY_LIKELY(!skipped)) {
        if (s->nmarks && s->marks[s->nmarks - 1].frame == frame) lowest = stack_drop_mark(s);
    } else {  // records that were skipped are below this one in the C stack
        while (s->nmarks && s->marks[s->nmarks - 1].frame <= frame) lowest = stack_drop_mark(s);
    }
    if (QY_LIKELY(lowest != UINT64_MAX)) qy_observe_end(&s->open.pool, caller, lowest, UINT64_MAX);
}

// Ended blocks lie behind all live ones, in the order of their places: a frame's lie before those that ended earlier,
// so the newest in quarantine has the first place (qy_observer_take_groups gives the newest block first). A turn
// changes the order of chunks: then all leave.
typedef struct reach {
    const qy_stack_t *stack;
    uintptr_t end;
    bool turned;
} reach_t;

static bool in_chunk(const qy_stack_chunk_t *c, uintptr_t at) { return at - (uintptr_t)c->base < qy_stack_bytes(c); }

static QY_COLD bool is_in_idle_chunk(const qy_stack_t *s, uintptr_t at) {
    for (const qy_stack_chunk_t *c = s->current->next; c; c = c->next)
        if (in_chunk(c, at)) return true;
    return false;  // in a chunk before the current one
}

QY_INLINE bool is_passed(uintptr_t raw, const void *arg) {
    const reach_t *r = arg;
    if (QY_UNLIKELY(r->turned)) return true;
    return QY_LIKELY(in_chunk(r->stack->current, raw)) ? raw < r->end : !is_in_idle_chunk(r->stack, raw);
}

void qy_stack_reused(qy_stack_t *s, char *end, bool turned) {
    qy_observe_reused(&s->open.pool, is_passed, &(reach_t){s, (uintptr_t)end, turned});
}

void qy_stack_drop_marks(qy_stack_t *s) {
    while (s->nmarks) s->nmarks--, qy_pool_trace_popped(&s->open.pool);
    if (s->marks) qy_pool_meta_free(s->marks, s->room_for_marks * sizeof *s->marks);
    s->marks = NULL;
    s->room_for_marks = 0;
}
