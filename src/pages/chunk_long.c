// SPDX-License-Identifier: MIT
// chunk_long.c: runs of more than a chunk. A long run begins with a chunk and goes on through the chunks behind it: so
// many whole ones, then the first units of one more. Freed neighbours need not be joined: a chunk is whole again when
// its last unit is free, and chunks that lie side by side serve together.
//
// First fit by address keeps what is in use low and together, and the whole chunks in long rows. Of the first few
// places, the one with the most dirty units is taken. A page that is there costs nothing, and a fault costs more than
// the search.
#include "pages/arena.h"
#include "pages/chunk.h"
#include "pages/chunk_state.h"
#include "pages/map.h"
#include "rt/heuristics.h"

#define PLACES 32u  // places looked at

typedef struct long_place {
    const qy_arena_t *arena;
    unsigned chunk, dirty;
} long_place_t;

static qy_chunk_t *chunk_at(const qy_arena_t *a, unsigned i) { return qy_map_chunk(qy_arena_at(a, i)); }

// Are the first n units of chunk i free?
static bool prefix_is_free(const qy_arena_t *a, unsigned i, unsigned n) {
    if (n == 0) return true;
    if (i >= a->opened) return false;
    const qy_chunk_t *c = chunk_at(a, i);
    qy_bits_t run = qy_bits_run(0, n);
    return c && c->arena == a && (c->free & run) == run;
}

static unsigned dirty_in(const qy_arena_t *a, unsigned i, unsigned n) {
    unsigned dirty = 0;
    for (; n; i++) {
        unsigned piece = (unsigned)qy_min(n, QY_CHUNK_UNITS);
        dirty += qy_bits_count(chunk_at(a, i)->dirty & qy_bits_run(0, piece));
        n -= piece;
    }
    return dirty;
}

// The first whole chunk from i on, or a->opened.
static unsigned next_whole(const qy_arena_t *a, unsigned i) {
    for (; i < a->opened; i = (i / 64 + 1) * 64) {
        uint64_t word = a->whole[i / 64] >> (i % 64);
        if (word) return (unsigned)qy_min(i + (unsigned)__builtin_ctzll(word), a->opened);
    }
    return a->opened;
}

static unsigned wholes_from(const qy_arena_t *a, unsigned i, unsigned most) {
    unsigned n = 0;
    while (n < most && i + n < a->opened && qy_arena_whole(a, i + n)) n++;
    return n;
}

// Look at places for n units in this arena until `left` is used up. *best is the best so far (arena NULL: none). True:
// no other can be better.
static bool long_look(const qy_arena_t *a, unsigned n, unsigned *left, long_place_t *best) {
    unsigned wholes = n / QY_CHUNK_UNITS, rest = n % QY_CHUNK_UNITS;
    for (unsigned i = next_whole(a, 0); i + wholes <= a->opened && *left;) {
        unsigned have = wholes_from(a, i, wholes);
        if (have == wholes && prefix_is_free(a, i + wholes, rest)) {
            unsigned dirty = dirty_in(a, i, n);
            if (!best->arena || dirty > best->dirty) *best = (long_place_t){a, i, dirty};
            if (dirty == n) return true;
            --*left;
        }
        i = next_whole(a, have < wholes ? i + have + 1 : i + 1);
    }
    return false;
}

static bool find(unsigned n, long_place_t *ret) {
    QY_NEEDS(&qy_units.lock);
    unsigned left = QY_WITH(touched) ? PLACES : 1;
    *ret = (long_place_t){NULL, 0, 0};
    for (const qy_arena_t *a = qy_units.arenas; a && left; a = a->next)
        if (long_look(a, n, &left, ret)) break;
    return ret->arena != NULL;
}

// Open chunks until there are enough whole ones at the end of the newest arena. One call makes all of them writable;
// where that is refused, each is tried by itself.
static bool open_wholes(unsigned need) {
    QY_NEEDS(&qy_units.lock);
    for (unsigned opened = 0; opened < need + 8; opened++) {
        const qy_arena_t *a = qy_units.arenas;
        unsigned have = 0;
        while (a && have < need && have < a->opened && qy_arena_whole(a, a->opened - 1 - have)) have++;
        if (have == need) return true;
        if (!a || a->chunks - a->opened < need - have) have = 0;
        if (!qy_arena_reserve(need - have)) return false;
        if (opened == 0) qy_arena_commit(need - have);
        if (!qy_chunk_open()) return false;
    }
    return false;  // the map has no entries here for so many side by side
}

static bool grow(unsigned n) {
    QY_NEEDS(&qy_units.lock);
    bool ok = open_wholes((n + QY_CHUNK_UNITS - 1) / QY_CHUNK_UNITS);
    if (!ok) qy_arena_uncommit();
    return ok;
}

bool qy_units_take_long(unsigned n, qy_chunk_t **ret_first, bool *ret_dirty) {
    long_place_t place;
    bool found;
    qy_lock_take(&qy_units.lock);
    do found = find(n, &place) || (grow(n) && find(n, &place));
    while (found && !qy_chunks_take(place.arena, place.chunk, n, ret_dirty));  // it fails once in the life of a process
    if (found) {
        *ret_first = chunk_at(place.arena, place.chunk);
        qy_units_grew();
    }
    qy_lock_drop(&qy_units.lock);
    return found;
}

// The next piece of units behind `first` + `n` of c and the chunks behind it: how many of `more` lie in one chunk.
typedef struct long_piece {
    qy_chunk_t *chunk;
    unsigned first, n;
} long_piece_t;

static long_piece_t piece_behind(const qy_chunk_t *c, unsigned end, unsigned more) {
    char *base = c->record.base + (size_t)(end / QY_CHUNK_UNITS) * QY_CHUNK;
    long_piece_t p = {qy_map_chunk(base), end % QY_CHUNK_UNITS, 0};
    p.n = (unsigned)qy_min(more, QY_CHUNK_UNITS - p.first);
    if (p.chunk && p.chunk->arena != c->arena) p.chunk = NULL;
    return p;
}

bool qy_units_extend(qy_chunk_t *chunk, unsigned first, unsigned n, unsigned more) {
    bool ok = true;
    qy_lock_take(&qy_units.lock);
    for (unsigned at = first + n, left = more; ok && left;) {
        long_piece_t p = piece_behind(chunk, at, left);
        qy_bits_t run = qy_bits_run(p.first, p.n);
        ok = p.chunk && (p.chunk->free & run) == run;
        at += p.n;
        left -= p.n;
    }
    for (unsigned at = first + n, left = more; ok && left;) {
        long_piece_t p = piece_behind(chunk, at, left);
        qy_chunk_take(p.chunk, qy_bits_run(p.first, p.n));
        at += p.n;
        left -= p.n;
    }
    if (ok) qy_units_grew();
    qy_lock_drop(&qy_units.lock);
    return ok;
}
