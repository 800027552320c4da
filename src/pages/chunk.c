// SPDX-License-Identifier: MIT
// chunk.c: see chunk.h. Invariants: dirty is a subset of free; longest is exact; a chunk with longest > 0 is on
// list[longest], others on none; what went back is not dirty. qy_chunk_check verifies them.
#include "pages/chunk.h"

#include "os/os.h"
#include "pages/arena.h"
#include "pages/chunk_state.h"
#include "pages/map.h"
#include "pages/meta.h"
#include "pages/purging.h"
#include "rt/diag.h"
#include "rt/heuristics.h"

qy_units_state_t qy_units;
qy_units_counts_t qy_units_counts;

// How far a place of touched units is looked for.
#define CHUNKS 4u     // with longest runs of one length
#define PLACES 128u   // in all, and in no more chunks
#define FOR_RUNS 32u  // of them, for a run: what it gets elsewhere it will touch at once

static void mark_whole(const qy_chunk_t *c, bool whole) {
    size_t i = (size_t)(c->record.base - c->arena->base) >> QY_CHUNK_SHIFT;
    uint64_t bit = UINT64_C(1) << (i % 64);
    c->arena->whole[i / 64] = whole ? c->arena->whole[i / 64] | bit : c->arena->whole[i / 64] & ~bit;
}

void qy_chunk_relist(qy_chunk_t *c) {
    QY_NEEDS(&qy_units.lock);
    unsigned longest = qy_bits_longest(c->free);
    if (longest == c->longest) return;
    if (longest == QY_CHUNK_UNITS || c->longest == QY_CHUNK_UNITS) mark_whole(c, longest == QY_CHUNK_UNITS);
    if (c->longest) {
        if (c->prev) c->prev->next = c->next;
        else qy_units.list[c->longest] = c->next;
        if (c->next) c->next->prev = c->prev;
        if (!qy_units.list[c->longest]) qy_units.lists &= ~((qy_bits_t)1 << (c->longest - 1));
    }
    c->longest = longest;
    c->prev = NULL;
    c->next = NULL;
    if (longest) {
        c->next = qy_units.list[longest];
        if (c->next) c->next->prev = c;
        qy_units.list[longest] = c;
        qy_units.lists |= (qy_bits_t)1 << (longest - 1);
    }
}

const char *qy_chunk_check(const qy_chunk_t *c) {
    QY_NEEDS(&qy_units.lock);
    if (c->dirty & ~c->free) return "a unit is dirty and not free";
    if (c->gone.all & c->dirty) return "a unit went back and is dirty";
    if (c->gone.old & ~c->free) return "a unit went back and is in use";
    if ((c->gone.old | c->gone.early) & ~c->gone.all) return "a unit is said to have gone back, and did not";
    if (c->longest != qy_bits_longest(c->free)) return "the longest run of a chunk is wrong";
    if (c->longest && c->prev ? c->prev->next != c : c->longest && qy_units.list[c->longest] != c)
        return "a chunk is not on its list";
    if (c->next && c->next->prev != c) return "a list of chunks is broken";
    if (c->next && c->next->longest != c->longest) return "a chunk is on another's list";
    size_t i = (size_t)(c->record.base - c->arena->base) >> QY_CHUNK_SHIFT;
    if (qy_arena_whole(c->arena, (unsigned)i) != (c->longest == QY_CHUNK_UNITS))
        return "whether a chunk is whole is wrong";
    return qy_map_chunk(c->record.base) == c ? NULL : "a chunk is not in the map";
}

const char *qy_units_check(void) {
    const char *wrong = NULL;
    size_t dirty = 0, free_units = 0, chunks = 0;
    qy_lock_take(&qy_units.lock);
    for (const qy_chunk_t *c = qy_units.all; c && !wrong; c = c->all_next) {
        wrong = qy_chunk_check(c);
        dirty += qy_bits_count(c->dirty);
        free_units += qy_bits_count(c->free);
        chunks++;
    }
    // While pages are with the kernel their units are neither free nor dirty, and free_bytes has them.
    if (!wrong && chunks * QY_CHUNK != qy_units_mapped_bytes()) wrong = "chunks are miscounted";
    if (!wrong && dirty * QY_UNIT != qy_units_dirty_bytes()) wrong = "dirty units are miscounted";
    if (!wrong && free_units * QY_UNIT > qy_units_free_bytes()) wrong = "free units are miscounted";
    qy_lock_drop(&qy_units.lock);
    return wrong;
}

// Units that went back are taken again.
QY_COLD static void taken_again(qy_chunk_t *c, qy_bits_t run) {
    qy_gone_t again = qy_gone_take(&c->gone, run);
    qy_purging_regret(qy_bits_count(again.all) * QY_UNIT, c->gone_ns);
    if (again.old) qy_age_again(qy_bits_count(again.old) * QY_UNIT);
    if (again.early) qy_purging_again(QY_PURGING_RUN_OLD, qy_bits_count(again.early) * QY_UNIT);
}

qy_bits_t qy_chunk_take(qy_chunk_t *c, qy_bits_t run) {
    QY_NEEDS(&qy_units.lock);
    qy_assert((c->free & run) == run);
    qy_bits_t dirty = c->dirty & run;
    qy_age_taken();
    qy_units_count(&qy_units_counts.dirty_bytes, 0, qy_bits_count(dirty) * QY_UNIT);
    qy_units_count(&qy_units_counts.free_bytes, 0, qy_bits_count(run) * QY_UNIT);
    if (QY_UNLIKELY((c->gone.all & run) != 0)) taken_again(c, run);
    c->free &= ~run;
    c->dirty &= ~run;
    c->old = (c->old & ~run) | dirty;
    qy_chunk_relist(c);
    qy_assert_sound(qy_chunk_check(c));
    return dirty;
}

// These bits again at each multiple of align.
static qy_bits_t repeat(qy_bits_t m, unsigned align) {
    for (unsigned step = align; step < QY_CHUNK_UNITS; step *= 2) m |= m << step;
    return m;
}

typedef struct chunk_place {
    qy_chunk_t *chunk;  // NULL: none yet
    unsigned first, touched;
} chunk_place_t;

// Better places for n units in c: the lowest of those with the most touched units, which are all of the place's unless
// `partly`. Looks at no more than *tries of them, or at one; to look at a chunk at all counts as one.
static void chunk_look(
    qy_chunk_t *c, unsigned n, qy_bits_t aligned, bool partly, unsigned *tries, chunk_place_t *best) {
    if (*tries) --*tries;
    qy_bits_t at = qy_bits_runs(c->free, n) & aligned, whole = qy_bits_runs(c->dirty, n) & at;
    if (whole) at = whole;
    else if (!partly && best->chunk) return;
    do {
        if (!at) break;
        unsigned first = qy_bits_lowest(at), touched = 0;
        if (whole || partly) touched = qy_bits_count(c->dirty & qy_bits_run(first, n));
        if (!best->chunk || touched > best->touched) *best = (chunk_place_t){c, first, touched};
        at &= at - 1;
    } while (partly && c->dirty && !whole && *tries && --*tries);
}

// What was touched is given out first, in whichever of the chunks that are looked at it is; else from the chunks with
// the shortest runs that are long enough. From 2n - 1 up (align <= n) or n + align - 1 up an aligned run is certain;
// below it, and where there may be a better place than the best so far, some chunks of each length are tried.
static bool take_locked(unsigned n, qy_bits_t aligned, bool partly, qy_units_t *ret) {
    QY_NEEDS(&qy_units.lock);
    size_t most = QY_WITH(touched) ? qy_min(n, qy_units_dirty_bytes() / QY_UNIT) : 0;
    if (!partly && most < n) most = 0;
    unsigned tries = partly ? PLACES : FOR_RUNS;
    if (!QY_WITH(touched)) tries = 1;
    chunk_place_t best = {.chunk = NULL};
    bool enough = false;
    for (qy_bits_t lists = qy_units.lists & ~qy_bits_run(0, n - 1); lists && !enough; lists &= lists - 1) {
        unsigned here = CHUNKS;
        for (qy_chunk_t *c = qy_units.list[qy_bits_lowest(lists) + 1]; c && here-- && !enough; c = c->next) {
            chunk_look(c, n, aligned, partly, &tries, &best);
            enough = best.chunk && (best.touched == most || !tries);
        }
    }
    if (!best.chunk) return false;
    ret->chunk = best.chunk;
    ret->first = best.first;
    qy_assert(aligned >> best.first & 1);
    ret->dirty = qy_chunk_take(best.chunk, qy_bits_run(best.first, n)) >> best.first;
    return true;
}

static bool chunk_take(unsigned n, qy_bits_t aligned, bool partly, qy_units_t *ret) {
    qy_lock_take(&qy_units.lock);
    bool ok = false;
    while (!ok) {
        ok = take_locked(n, aligned, partly, ret);
        if (!ok && !qy_chunk_open()) break;
    }
    if (ok) qy_units_grew();
    qy_lock_drop(&qy_units.lock);
    return ok;
}

// Not at places that are touched in part: of a run that is to be zero all would be cleared for it.
bool qy_units_take(unsigned n, unsigned align, qy_units_t *ret) { return chunk_take(n, repeat(1, align), false, ret); }
bool qy_units_take_at(unsigned n, unsigned align, qy_bits_t places, qy_units_t *ret) {
    return chunk_take(n, repeat(places, align), true, ret);
}

void qy_chunk_give(qy_chunk_t *c, qy_bits_t run, qy_bits_t dirty) {
    QY_NEEDS(&qy_units.lock);
    qy_assert((c->free & run) == 0 && (dirty & ~run) == 0);
    c->free |= run;
    c->dirty |= dirty;
    qy_units_count(&qy_units_counts.free_bytes, qy_bits_count(run) * QY_UNIT, 0);
    qy_units_count(&qy_units_counts.dirty_bytes, qy_bits_count(dirty) * QY_UNIT, 0);
    qy_chunk_relist(c);
    qy_assert_sound(qy_chunk_check(c));
}

// ---- whole chunks --------------------------------------------------------------------------

// *link is the chunk's place among all.
static void forget(qy_chunk_t **link) {
    QY_NEEDS(&qy_units.lock);
    qy_chunk_t *c = *link;
    qy_units_count(&qy_units_counts.mapped_bytes, 0, QY_CHUNK);
    if (c->separate) qy_units.separate--;
    c->separate = false;
    c->arena->present--;
    *link = c->all_next;
    c->all_next = qy_units.spare;
    qy_units.spare = c;
}

// Unmap a chunk that is wholly free. False: it stays.
static bool chunk_release(qy_chunk_t **link) {
    QY_NEEDS(&qy_units.lock);
    qy_chunk_t *c = *link;
    // Out of the map first: the address may be another thread's as soon as it is unmapped.
    qy_map_remove(&c->record);
    if (!qy_os_unmap(c->record.base, QY_CHUNK)) {
        // Another may have its entry by now: then its address space is lost.
        if (qy_map_add(&c->record, c->record.base, true) == QY_MAP_ADDED) return false;
        qy_os_decommit(c->record.base, QY_CHUNK);
    }
    qy_units_count(&qy_units_counts.dirty_bytes, 0, qy_bits_count(c->dirty) * QY_UNIT);
    qy_units_count(&qy_units_counts.free_bytes, 0, QY_CHUNK);
    c->free = c->dirty = 0;
    c->gone = (qy_gone_t){0};
    qy_chunk_relist(c);
    forget(link);
    return true;
}

static qy_chunk_t **link_of(const qy_chunk_t *c) {
    qy_chunk_t **link = &qy_units.all;
    while (*link != c) link = &(*link)->all_next;
    return link;
}

void qy_chunk_forget(qy_chunk_t *c) { forget(link_of(c)); }

// Those that are clean, or all. What was never opened is address space too.
static size_t release_whole(bool dirty_too) {
    QY_NEEDS(&qy_units.lock);
    size_t total = 0;
    for (qy_chunk_t **link = &qy_units.all, *c; (c = *link);) {
        if (c->longest == QY_CHUNK_UNITS && (dirty_too || !c->dirty) && chunk_release(link)) total += QY_CHUNK;
        else link = &c->all_next;
    }
    qy_arena_trim();
    qy_units.arena_next = QY_CHUNK;
    return total;
}

bool qy_chunk_open(void) {
    QY_NEEDS(&qy_units.lock);
    qy_chunk_t *c = qy_units.spare;
    if (c) qy_units.spare = c->all_next;
    else c = qy_meta_alloc(sizeof *c);
    if (!c) return false;
    if (!qy_arena_enter(c)) {
        c->all_next = qy_units.spare;
        qy_units.spare = c;
        return false;
    }
    atomic_store_explicit(&c->record.kind, QY_RECORD_UNITS, memory_order_relaxed);
    c->free = ~(qy_bits_t)0;
    c->dirty = 0;
    c->gone = (qy_gone_t){0};
    c->longest = 0;
    c->all_next = qy_units.all;
    qy_units.all = c;
    qy_units_count(&qy_units_counts.mapped_bytes, QY_CHUNK, 0);
    qy_units_count(&qy_units_counts.free_bytes, QY_CHUNK, 0);
    qy_chunk_relist(c);
    return true;
}

size_t qy_units_release(void) {
    qy_lock_take(&qy_units.lock);
    size_t total = release_whole(true);
    qy_lock_drop(&qy_units.lock);
    return total;
}

void qy_units_release_if_scarce(void) {
    qy_lock_take(&qy_units.lock);
    if (qy_units.list[QY_CHUNK_UNITS] && !qy_arena_is_plenty(qy_units_free_bytes())) release_whole(false);
    qy_lock_drop(&qy_units.lock);
}

// Where address space is scarce, the program's own mappings need it, too. An eighth of what there is may stay for the
// next mallocs, or two chunks: a large object that comes and goes shall not call the kernel each time. So what was
// freed first goes first.
static qy_chunk_t *first_freed(void) {
    qy_chunk_t *c = qy_units.list[QY_CHUNK_UNITS];
    while (c && c->next) c = c->next;
    return c;
}
static void release_surplus(void) {
    QY_NEEDS(&qy_units.lock);
    qy_chunk_t *c;
    while (qy_units_free_bytes() >= qy_max(qy_units_mapped_bytes() / 8, 2 * QY_CHUNK) + QY_CHUNK && (c = first_freed()))
        if (!chunk_release(link_of(c))) break;
}

void qy_units_give(qy_chunk_t *chunk, unsigned first, unsigned n, qy_bits_t dirty) {
    qy_lock_take(&qy_units.lock);
    chunk->epoch = qy_purging_epoch();
    qy_chunk_give(chunk, qy_bits_run(first, n), (dirty & qy_bits_run(0, n)) << first);
    if (QY_UNLIKELY(qy_units_are_scarce())) release_surplus();
    qy_lock_drop(&qy_units.lock);
}

qy_bits_t qy_units_old(const qy_chunk_t *chunk) {
    qy_lock_take(&qy_units.lock);
    qy_bits_t old = chunk->old;
    qy_lock_drop(&qy_units.lock);
    return old;
}

void qy_units_gone(qy_chunk_t *chunk, unsigned first, unsigned n, bool from_budget) {
    char *base = chunk->record.base;
    uint64_t now = qy_os_now_coarse_ns();
    qy_lock_take(&qy_units.lock);
    for (unsigned at = first; n;) {
        unsigned begin = at % QY_CHUNK_UNITS, piece = (unsigned)qy_min(n, QY_CHUNK_UNITS - begin);
        qy_chunk_t *c = qy_map_chunk(base + (size_t)(at / QY_CHUNK_UNITS) * QY_CHUNK);
        c->gone.all |= qy_bits_run(begin, piece);
        c->gone_ns = now;
        if (from_budget) c->gone.early |= qy_bits_run(begin, piece);
        at += piece;
        n -= piece;
    }
    qy_lock_drop(&qy_units.lock);
}

void qy_units_give_long(qy_chunk_t *chunk, unsigned first, unsigned n, bool dirty) {
    // A chunk whose units have been given may be whole, and at once be released by another thread: its record is not
    // read again.
    char *base = chunk->record.base;
    for (unsigned at = first; n;) {
        unsigned begin = at % QY_CHUNK_UNITS, piece = (unsigned)qy_min(n, QY_CHUNK_UNITS - begin);
        qy_chunk_t *c = qy_map_chunk(base + (size_t)(at / QY_CHUNK_UNITS) * QY_CHUNK);
        qy_units_give(c, begin, piece, dirty ? qy_bits_run(0, piece) : 0);
        at += piece;
        n -= piece;
    }
}

bool qy_units_are_scarce(void) { return atomic_load_explicit(&qy_units.scarce, memory_order_relaxed); }

qy_lock_t *qy_units_lock(void) { return &qy_units.lock; }

// ---- pages of free units go back: those that are old, or all; at the peak as many as come new -------------

// Purge the lowest run of *todo, which are dirty units of c, outside the lock: the units are taken out
// of the free set meanwhile, so nobody can be handed them. Takes the run off *todo. Returns bytes.
static size_t purge_run_locked(qy_chunk_t *c, qy_bits_t *todo, bool by_age) {
    QY_NEEDS(&qy_units.lock);
    size_t page_units = qy_max(1, qy_os_page_size() / QY_UNIT);
    unsigned first = qy_bits_lowest(*todo);
    qy_bits_t rest = ~(*todo >> first);
    unsigned n = rest ? qy_bits_lowest(rest) : QY_CHUNK_UNITS;
    if (first + n > QY_CHUNK_UNITS) n = QY_CHUNK_UNITS - first;
    qy_bits_t run = qy_bits_run(first, n);
    *todo &= ~run;
    c->free &= ~run;
    c->dirty &= ~run;
    qy_chunk_relist(c);
    qy_units_count(&qy_units_counts.dirty_bytes, 0, n * QY_UNIT);
    qy_lock_drop(&qy_units.lock);

    // With pages larger than a unit only whole pages inside the run can go back.
    unsigned begin = (unsigned)qy_round_up(first, page_units), end = (unsigned)qy_round_down(first + n, page_units);
    char *from = c->record.base + begin * QY_UNIT;
    if (begin >= end || !qy_purging_pages(from, (end - begin) * QY_UNIT)) begin = end = first;
    size_t bytes = (end - begin) * QY_UNIT;

    qy_lock_take(&qy_units.lock);
    qy_bits_t kept = run & ~qy_bits_run(begin, end - begin);
    c->free |= run;
    c->dirty |= kept;
    c->gone.all |= run & ~kept;
    c->gone_ns = qy_os_now_coarse_ns();
    if (by_age) c->gone.old |= run & ~kept;  // what was asked for says nothing of how long to wait
    qy_units_count(&qy_units_counts.dirty_bytes, qy_bits_count(kept) * QY_UNIT, 0);
    qy_chunk_relist(c);
    return bytes;
}

size_t qy_chunks_purge(uint32_t epoch, uint32_t age, size_t keep, size_t budget) {
    QY_NEEDS(&qy_units.lock);
    size_t total = 0;
    for (qy_chunk_t *c = qy_units.all; c && total < budget; c = c->all_next) {
        // Each run is tried once: what cannot go back (locked pages) does not keep others from it.
        qy_bits_t todo = c->dirty;
        while (todo && epoch - c->epoch >= age && total < budget &&
               atomic_load_explicit(&qy_units_counts.dirty_bytes, memory_order_relaxed) > keep) {
            total += purge_run_locked(c, &todo, age > 0);
            todo &= c->dirty;  // units may have been taken meanwhile
        }
    }
    return total;
}

size_t qy_units_purge(uint32_t epoch, uint32_t age, size_t keep, size_t budget) {
    qy_lock_take(&qy_units.lock);
    size_t total = qy_chunks_purge(epoch, age, keep, budget);
    qy_lock_drop(&qy_units.lock);
    return total;
}

// ---- at the peak --------------------------------------------------------------------------------

#define WORTH ((size_t)64 << 10)  // less that is free is not looked at,
#define PART 256u                 // nor less than this part of all
#define STEP ((size_t)256 << 10)  // at least this much goes back at once

// A large run may have as much go as it brings, which is little beside touching it, and that is paid for later. A small
// program that runs for a moment would spend a second's worth in it, were more than a part saved.
static void give_at_peak(size_t want, size_t touched) {
    if (!qy_purging_may(QY_PURGING_GROWTH, want, touched) || !qy_lock_try(qy_purging_lock())) return;
    size_t bytes = qy_chunks_purge(0, 0, 0, want);
    qy_lock_drop(qy_purging_lock());
    if (bytes < want && qy_units_dirty_bytes() >= WORTH) qy_purging_refused(QY_PURGING_GROWTH);
    else qy_purging_pay(QY_PURGING_GROWTH, bytes);
}

void qy_units_grew(void) {
    QY_NEEDS(&qy_units.lock);
    size_t touched = qy_units_touched_bytes();
    if (touched <= qy_units.most_touched) return;
    if (QY_WITH(early) && qy_units_dirty_bytes() >= qy_max(WORTH, touched / PART)) {
        give_at_peak(qy_max(touched - qy_units.most_touched, STEP), touched);
        touched = qy_units_touched_bytes();
    }
    qy_units.most_touched = qy_max(qy_units.most_touched, touched);
}
