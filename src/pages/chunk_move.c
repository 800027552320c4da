// SPDX-License-Identifier: MIT
// chunk_move.c: a long run that would begin on untouched pages gets those of free chunks elsewhere.
//
// Free memory often does not lie where the next long run fits. New pages cost a fault each, a hundred times what it
// costs to move the pages of a whole chunk, which the kernel does by its tables; and they raise the peak while the old
// ones serve nobody. A chunk with moved pages is a mapping of its own from then on, so not all may be. With huge pages
// always, new ones are one fault a chunk, and are soon split by moving.
//
// What is on moved pages lies in many mappings, so it is copied where it grows into a mapping of its own
// (heap/realloc.c). The copy costs more than the move saved. So nothing is moved any more once a long run has grown in
// this process.
#include "os/os.h"
#include "pages/arena.h"
#include "pages/chunk.h"
#include "pages/chunk_state.h"
#include "pages/map.h"
#include "pages/purging.h"
#include "rt/heuristics.h"

#define PIECES (QY_LONG_MAX / QY_CHUNK + 1)
#define WHOLE (~(qy_bits_t)0)
#define GAIN 64u             // units with pages that a move has to bring
#define SEARCH 64u           // whole chunks looked at for them
#define SEPARATE_MOST 4096u  // of the 65,530 mappings that a process usually may have, a move makes two

// A chunk that the run goes through.
typedef struct move_piece {
    qy_chunk_t *to, *from;        // from: whose pages it gets, or NULL
    unsigned n;                   // units of the run, from the chunk's first on
    qy_bits_t taken;              // these, and those behind them if pages are to come
    qy_bits_t dirty, from_dirty;  // before the move
    qy_gone_t gone, from_gone;    // what qy_chunk_take would take for used again
    bool moved;
} move_piece_t;

static unsigned take_place(const qy_arena_t *a, unsigned i, unsigned n, move_piece_t pieces[]) {
    QY_NEEDS(&qy_units.lock);
    unsigned count = 0;
    for (; n; i++, count++) {
        move_piece_t *p = &pieces[count];
        qy_chunk_t *to = qy_map_chunk(qy_arena_at(a, i));
        *p = (move_piece_t){.to = to, .n = (unsigned)qy_min(n, QY_CHUNK_UNITS)};
        // A chunk that is whole could get pages. Until that is done nobody may have the rest of it.
        p->taken = qy_bits_run(0, p->n >= GAIN && to->free == WHOLE ? QY_CHUNK_UNITS : p->n);
        p->gone = qy_gone_take(&to->gone, ~qy_bits_run(0, p->n));
        p->dirty = qy_chunk_take(to, p->taken);
        n -= p->n;
    }
    return count;
}

// The first whole chunk, of some, with enough pages more in its first n units.
static qy_chunk_t *giver(unsigned n, unsigned have) {
    unsigned left = SEARCH;
    for (qy_chunk_t *c = qy_units.list[QY_CHUNK_UNITS]; c && left; c = c->next, left--)
        if (qy_bits_count(c->dirty & qy_bits_run(0, n)) >= have + GAIN) return c;
    return NULL;
}

static bool find_givers(move_piece_t pieces[], unsigned count) {
    QY_NEEDS(&qy_units.lock);
    bool any = false;
    unsigned separate = qy_units.separate;
    for (unsigned k = 0; k < count && qy_units_dirty_bytes() >= GAIN * QY_UNIT; k++) {
        move_piece_t *p = &pieces[k];
        unsigned have = qy_bits_count(p->dirty & qy_bits_run(0, p->n));
        if (p->taken != WHOLE || have + GAIN > p->n || (!p->to->separate && separate == SEPARATE_MOST)) continue;
        p->from = giver(p->n, have);
        if (!p->from) continue;
        p->from_gone = qy_gone_take(&p->from->gone, WHOLE);
        p->from_dirty = qy_chunk_take(p->from, WHOLE);
        separate += !p->to->separate;
        any = true;
    }
    return any;
}

// Without the lock. Returns a piece whose move failed, the address of which is no longer ours, or NULL.
static move_piece_t *move_all(move_piece_t pieces[], unsigned count) {
    for (move_piece_t *p = pieces; p < pieces + count; p++) {
        if (!p->from || !qy_os_may_move_out(p->from->record.base, QY_CHUNK)) continue;
        p->moved = qy_os_move_out(p->from->record.base, QY_CHUNK, p->to->record.base);
        if (!p->moved) return p;
    }
    return NULL;
}

// Of what was taken the units `keep` stay taken.
static void settle(move_piece_t *p, qy_bits_t keep) {
    if (p->from) {
        qy_chunk_give(p->from, WHOLE, p->moved ? 0 : p->from_dirty);
        p->from->gone = p->from_gone;
    }
    if (p->from && p->moved) {
        p->dirty = p->to->old = p->from_dirty;
        p->to->epoch = p->from->epoch;
        if (!p->to->separate) qy_units.separate++;
        p->to->separate = true;
    }
    if (p->taken & ~keep) qy_chunk_give(p->to, p->taken & ~keep, p->dirty & ~keep);
    qy_gone_t still = qy_gone_take(&p->gone, p->to->free & ~p->to->dirty);
    p->to->gone.all |= still.all;
    p->to->gone.old |= still.old;
    p->to->gone.early |= still.early;
}

// [lock: purging] of the run that pages move to; too many for the stack of a small thread
static move_piece_t move_pieces[PIECES];

static bool take_as_they_are(const qy_arena_t *a, unsigned i, unsigned n) {
    bool dirty = false;
    for (unsigned piece; n; i++, n -= piece) {
        piece = (unsigned)qy_min(n, QY_CHUNK_UNITS);
        dirty |= qy_chunk_take(qy_map_chunk(qy_arena_at(a, i)), qy_bits_run(0, piece)) != 0;
    }
    return dirty;
}

static bool take_with_pages(const qy_arena_t *a, unsigned i, unsigned n, bool *ret_dirty) {
    QY_NEEDS(&qy_units.lock);
    QY_NEEDS(qy_purging_lock());
    move_piece_t *pieces = move_pieces, *lost = NULL;
    unsigned count = take_place(a, i, n, pieces);
    if (find_givers(pieces, count)) {
        qy_lock_drop(&qy_units.lock);
        lost = move_all(pieces, count);
        qy_lock_take(&qy_units.lock);
    }
    *ret_dirty = false;
    for (move_piece_t *p = pieces; p < pieces + count; p++) {
        settle(p, !lost ? qy_bits_run(0, p->n) : p == lost ? p->taken
                                                           : 0);
        *ret_dirty |= (p->dirty & qy_bits_run(0, p->n)) != 0;
    }
    if (!lost) return true;
    qy_units.moves_denied = true;  // whatever it was: the next may cost address space as well
    qy_map_remove(&lost->to->record);
    qy_chunk_forget(lost->to);
    return false;
}

bool qy_chunks_take(const qy_arena_t *a, unsigned i, unsigned n, bool *ret_dirty) {
    QY_NEEDS(&qy_units.lock);
    // The purge lock is what a fork waits for: chunks that are with the kernel just then would be lost in the child.
    bool may = QY_WITH(touched) && !qy_units.moves_denied &&
               !atomic_load_explicit(&qy_units.grows, memory_order_relaxed) &&
               qy_units_dirty_bytes() >= GAIN * QY_UNIT && !qy_os_thp_always() && qy_lock_try(qy_purging_lock());
    if (!may) {
        *ret_dirty = take_as_they_are(a, i, n);
        return true;
    }
    bool taken = take_with_pages(a, i, n, ret_dirty);
    qy_lock_drop(qy_purging_lock());
    return taken;
}

bool qy_units_are_separate(const qy_chunk_t *chunk, unsigned first, unsigned n) {
    // It becomes so while it is wholly free, or the caller's as just now, so no lock is needed.
    unsigned count = (first + n + QY_CHUNK_UNITS - 1) / QY_CHUNK_UNITS;
    for (unsigned i = 0; count > 1 && i < count; i++)
        if (qy_map_chunk(chunk->record.base + (size_t)i * QY_CHUNK)->separate) return true;
    return false;
}

void qy_units_grow(void) { atomic_store_explicit(&qy_units.grows, true, memory_order_relaxed); }
