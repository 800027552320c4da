// SPDX-License-Identifier: MIT
// chunk.c: see chunk.h. Invariants (check_chunk): dirty is a subset of free; longest is exact; a
// chunk with longest > 0 is on list[longest], others on none.
#include "heap/chunk.h"

#include "heap/map.h"
#include "heap/meta.h"
#include "heap/purge.h"
#include "os/os.h"
#include "rt/diag.h"

#define ARENA_FIRST ((size_t)64 << 20)
#define ARENA_MAX ((size_t)4 << 30)

qy_slab_t qy_span_freed;

static struct {
    qy_lock_t lock;
    qy_chunk_t *list[QY_CHUNK_UNITS + 1];  // by longest free run; list[0] unused
    qy_bits_t lists;                       // bit i: list[i + 1] is not empty
    qy_chunk_t *all;
    qy_chunk_t *spare;            // records whose chunk was released
    char *arena_pos, *arena_end;  // the rest of the newest reservation
    size_t arena_next;            // bytes to reserve next
    _Atomic size_t dirty_bytes, free_bytes, mapped_bytes;
} units;

static unsigned bits_count(qy_bits_t b) {
    return (unsigned)(__builtin_popcountll((uint64_t)b) + __builtin_popcountll((uint64_t)(b >> 64)));
}
static unsigned bits_lowest(qy_bits_t b) {  // b != 0
    return (uint64_t)b ? (unsigned)__builtin_ctzll((uint64_t)b) : 64u + (unsigned)__builtin_ctzll((uint64_t)(b >> 64));
}

// Where runs of n ones begin.
static qy_bits_t bits_runs(qy_bits_t b, unsigned n) {
    for (unsigned have = 1; have < n && b;) {
        unsigned step = (unsigned)qy_min(have, n - have);
        b &= b >> step;
        have += step;
    }
    return b;
}

static unsigned bits_longest(qy_bits_t b) {
    if (!b) return 0;
    // Double the length while such runs exist, then add the halves that still fit.
    qy_bits_t power[8];
    unsigned k = 0;
    power[0] = b;
    while (k < 7) {
        qy_bits_t next = power[k] & (power[k] >> (1u << k));
        if (!next) break;
        power[++k] = next;
    }
    if (k == 7) return 128;
    unsigned length = 1u << k;
    qy_bits_t at = power[k];
    for (unsigned i = k; i-- > 0;) {
        qy_bits_t longer = at & (power[i] >> length);
        if (longer) {
            at = longer;
            length += 1u << i;
        }
    }
    return length;
}

static void file_locked(qy_chunk_t *c) {
    unsigned longest = bits_longest(c->free);
    if (longest == c->longest) return;
    if (c->longest) {
        if (c->prev) c->prev->next = c->next;
        else units.list[c->longest] = c->next;
        if (c->next) c->next->prev = c->prev;
        if (!units.list[c->longest]) units.lists &= ~((qy_bits_t)1 << (c->longest - 1));
    }
    c->longest = longest;
    c->prev = NULL;
    c->next = NULL;
    if (longest) {
        c->next = units.list[longest];
        if (c->next) c->next->prev = c;
        units.list[longest] = c;
        units.lists |= (qy_bits_t)1 << (longest - 1);
    }
}

static void count(_Atomic size_t *counter, size_t add, size_t sub) {  // under the lock: plain arithmetic, atomic for readers
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + add - sub, memory_order_relaxed);
}

static bool reserve_arena_locked(void) {
    // An arena never takes more than 1/16 of a limited address space, so that the program's own
    // mappings and stacks still find room.
    size_t want = units.arena_next ? units.arena_next : ARENA_FIRST, limit = qy_os_address_limit();
    while (want > QY_CHUNK && want > limit / 16) want >>= 1;
    for (; want >= QY_CHUNK; want >>= 1) {
        char *base = qy_os_reserve(want, QY_CHUNK, units.arena_end);
        if (!base) continue;
        if (units.arena_pos < units.arena_end) qy_os_unmap(units.arena_pos, (size_t)(units.arena_end - units.arena_pos));
        units.arena_pos = base;
        units.arena_end = base + want;
        units.arena_next = qy_min(want * 2, ARENA_MAX);
        return true;
    }
    return false;
}

// A new chunk, all free and clean.
static bool open_chunk_locked(void) {
    qy_chunk_t *c = units.spare;
    if (c) units.spare = c->all_next;
    else c = qy_meta_alloc(sizeof *c);
    if (!c) return false;
    for (int tries = 0; tries < 8; tries++) {
        if (units.arena_pos == units.arena_end && !reserve_arena_locked()) break;
        c->base = units.arena_pos;
        if (!qy_os_commit(c->base, QY_CHUNK)) break;
        units.arena_pos += QY_CHUNK;
        qy_map_answer_t answer = qy_map_add(c, true);
        if (answer != QY_MAP_ADDED) {
            qy_os_decommit(c->base, QY_CHUNK);
            if (answer == QY_MAP_TAKEN) continue;  // leave this address alone
            units.arena_pos -= QY_CHUNK;
            break;
        }
        qy_os_name(c->base, QY_CHUNK, "quarry heap");
        atomic_store_explicit(&c->kind, QY_CHUNK_UNITS_OF, memory_order_relaxed);
        c->free = ~(qy_bits_t)0;
        c->dirty = 0;
        c->longest = 0;
        c->all_next = units.all;
        units.all = c;
        count(&units.mapped_bytes, QY_CHUNK, 0);
        count(&units.free_bytes, QY_CHUNK, 0);
        file_locked(c);
        return true;
    }
    c->all_next = units.spare;
    units.spare = c;
    return false;
}

// Bits at multiples of align.
static qy_bits_t align_mask(unsigned align) {
    qy_bits_t m = 1;
    for (unsigned step = align; step < QY_CHUNK_UNITS; step *= 2) m |= m << step;
    return m;
}

static bool take_from_locked(qy_chunk_t *c, unsigned n, qy_bits_t aligned, qy_units_t *ret) {
    qy_bits_t at = bits_runs(c->dirty, n) & aligned;
    if (!at) at = bits_runs(c->free, n) & aligned;
    if (!at) return false;
    unsigned first = bits_lowest(at);
    qy_bits_t run = qy_bits_run(first, n);
    ret->chunk = c;
    ret->first = first;
    ret->dirty = (c->dirty & run) >> first;
    count(&units.dirty_bytes, 0, bits_count(ret->dirty) * QY_UNIT);
    count(&units.free_bytes, 0, n * QY_UNIT);
    c->free &= ~run;
    c->dirty &= ~run;
    file_locked(c);
    return true;
}

bool qy_units_take(unsigned n, unsigned align, qy_units_t *ret) {
    qy_bits_t aligned = align_mask(align);
    qy_lock_take(&units.lock);
    for (;;) {
        // From 2n - 1 up (align <= n) or n + align - 1 up an aligned run is certain; below it, try a few.
        for (qy_bits_t lists = units.lists & ~qy_bits_run(0, n - 1); lists;) {
            unsigned longest = bits_lowest(lists) + 1;
            int tries = 4;
            for (qy_chunk_t *c = units.list[longest]; c && tries; c = c->next, tries--) {
                if (take_from_locked(c, n, aligned, ret)) {
                    qy_lock_drop(&units.lock);
                    return true;
                }
            }
            lists &= lists - 1;
        }
        if (!open_chunk_locked()) break;
    }
    qy_lock_drop(&units.lock);
    return false;
}

void qy_units_give(qy_chunk_t *chunk, unsigned first, unsigned n, qy_bits_t dirty) {
    dirty &= qy_bits_run(0, n);
    qy_lock_take(&units.lock);
    qy_assert((chunk->free & qy_bits_run(first, n)) == 0);
    chunk->free |= qy_bits_run(first, n);
    chunk->dirty |= dirty << first;
    chunk->epoch = qy_purge_epoch();
    count(&units.free_bytes, n * QY_UNIT, 0);
    count(&units.dirty_bytes, bits_count(dirty) * QY_UNIT, 0);
    file_locked(chunk);
    qy_lock_drop(&units.lock);
}

bool qy_units_extend(qy_chunk_t *chunk, unsigned first, unsigned n, unsigned more, qy_bits_t *ret_dirty) {
    if (first + n + more > QY_CHUNK_UNITS) return false;
    qy_bits_t run = qy_bits_run(first + n, more);
    bool ok = false;
    qy_lock_take(&units.lock);
    if ((chunk->free & run) == run) {
        *ret_dirty = (chunk->dirty & run) >> (first + n);
        count(&units.dirty_bytes, 0, bits_count(*ret_dirty) * QY_UNIT);
        count(&units.free_bytes, 0, more * QY_UNIT);
        chunk->free &= ~run;
        chunk->dirty &= ~run;
        file_locked(chunk);
        ok = true;
    }
    qy_lock_drop(&units.lock);
    return ok;
}

// ---- giving back ----------------------------------------------------------------------------

// Purge the lowest run of *todo, which are dirty units of c, outside the lock: the units are taken out
// of the free set meanwhile, so nobody can be handed them. Takes the run off *todo. Returns bytes.
static size_t purge_run_locked(qy_chunk_t *c, qy_bits_t *todo) {
    size_t page_units = qy_max(1, qy_os_page_size() / QY_UNIT);
    unsigned first = bits_lowest(*todo);
    qy_bits_t rest = ~(*todo >> first);
    unsigned n = rest ? bits_lowest(rest) : QY_CHUNK_UNITS;
    if (first + n > QY_CHUNK_UNITS) n = QY_CHUNK_UNITS - first;
    qy_bits_t run = qy_bits_run(first, n);
    *todo &= ~run;
    c->free &= ~run;
    c->dirty &= ~run;
    file_locked(c);
    count(&units.dirty_bytes, 0, n * QY_UNIT);
    qy_lock_drop(&units.lock);

    // With pages larger than a unit only whole pages inside the run can go back.
    unsigned begin = (unsigned)qy_round_up(first, page_units), end = (unsigned)qy_round_down(first + n, page_units);
    if (begin >= end || !qy_os_purge(c->base + begin * QY_UNIT, (end - begin) * QY_UNIT)) begin = end = first;
    size_t bytes = (end - begin) * QY_UNIT;
    if (bytes) qy_purge_count(bytes);

    qy_lock_take(&units.lock);
    qy_bits_t kept = run & ~qy_bits_run(begin, end - begin);
    c->free |= run;
    c->dirty |= kept;
    count(&units.dirty_bytes, bits_count(kept) * QY_UNIT, 0);
    file_locked(c);
    return bytes;
}

size_t qy_units_purge(uint32_t epoch, uint32_t age, size_t keep, size_t budget) {
    size_t total = 0;
    qy_lock_take(&units.lock);
    for (qy_chunk_t *c = units.all; c; c = c->all_next) {
        // Each run is tried once: what cannot go back (locked pages) does not keep others from it.
        qy_bits_t todo = c->dirty;
        while (todo && epoch - c->epoch >= age && total < budget &&
               atomic_load_explicit(&units.dirty_bytes, memory_order_relaxed) > keep) {
            total += purge_run_locked(c, &todo);
            todo &= c->dirty;  // units may have been taken meanwhile
        }
    }
    qy_lock_drop(&units.lock);
    return total;
}

size_t qy_units_release(void) {
    size_t total = 0;
    qy_lock_take(&units.lock);
    for (qy_chunk_t **link = &units.all, *c; (c = *link);) {
        // Out of the map first: the address may be another thread's as soon as it is unmapped.
        bool whole = c->longest == QY_CHUNK_UNITS;
        if (whole) qy_map_remove(c);
        if (whole && !qy_os_unmap(c->base, QY_CHUNK)) {
            qy_map_add(c, true);
            whole = false;
        }
        if (whole) {
            count(&units.dirty_bytes, 0, bits_count(c->dirty) * QY_UNIT);
            count(&units.free_bytes, 0, QY_CHUNK);
            count(&units.mapped_bytes, 0, QY_CHUNK);
            c->free = c->dirty = 0;
            file_locked(c);
            *link = c->all_next;
            c->all_next = units.spare;
            units.spare = c;
            total += QY_CHUNK;
        } else {
            link = &c->all_next;
        }
    }
    // The unopened rest of the arena is address space too.
    if (units.arena_pos < units.arena_end && qy_os_unmap(units.arena_pos, (size_t)(units.arena_end - units.arena_pos))) {
        units.arena_end = units.arena_pos;
        units.arena_next = QY_CHUNK;
    }
    qy_lock_drop(&units.lock);
    return total;
}

size_t qy_units_dirty_bytes(void) { return atomic_load_explicit(&units.dirty_bytes, memory_order_relaxed); }
size_t qy_units_free_bytes(void) { return atomic_load_explicit(&units.free_bytes, memory_order_relaxed); }
size_t qy_units_mapped_bytes(void) { return atomic_load_explicit(&units.mapped_bytes, memory_order_relaxed); }

qy_lock_t *qy_units_lock(void) { return &units.lock; }
