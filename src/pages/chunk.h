// SPDX-License-Identifier: MIT
// chunk.h: the page layer: where slabs and runs get their units.
//
//   arena (reserved address space) ─> chunk 2 MiB (made writable when first needed) ─> 128 units
//
// A chunk's two bitmaps say which units are free and which of the free ones may have been touched
// (dirty). Dirty units are handed out before clean ones, because a page fault costs as much as
// sixty malloc/free pairs. Chunks are filed by their longest run of free units; a request takes units that are
// all dirty, if some chunks that are looked at have such a run, else the chunk with the shortest sufficient run,
// so that long runs stay whole and sparse chunks empty.
// Runs longer than a chunk go through chunks that lie side by side (chunk_long.c).
// Threads: one lock for the layer. What gives pages back drops it around each system call; it is held across those that
// open a chunk, reserve an arena, or unmap what is wholly free (trim, and when memory cannot be had).
#ifndef QY_PAGES_CHUNK_H
#define QY_PAGES_CHUNK_H

#include "pages/map.h"
#include "pages/types.h"

typedef struct qy_units {
    qy_chunk_t *chunk;
    unsigned first;
    qy_bits_t dirty;  // bit i: unit first + i may hold old contents; 0: all is zero
} qy_units_t;

// Take n units (1..128) at a multiple of `align` units from the chunk's start (a power of two).
// False: no memory. The caller enters span[] itself.
bool qy_units_take(unsigned n, unsigned align, qy_units_t *ret);

// For slabs: where `places` has a bit for how many units it is from such a multiple; rather where some units are
// touched than none.
bool qy_units_take_at(unsigned n, unsigned align, qy_bits_t places, qy_units_t *ret);

// Give units back, and chunks that are whole to the kernel where address space is scarce; `dirty` has a bit for each
// that may have been touched (bit 0 = first).
void qy_units_give(qy_chunk_t *chunk, unsigned first, unsigned n, qy_bits_t dirty);

// A long run: n units, more than a chunk has, from the beginning of *ret_first on through the chunks behind it, whose
// records are in the map. *ret_dirty: some of them may hold old contents. Where it would begin on untouched pages it
// may get those of free chunks, by a few system calls without the lock. (chunk_long.c, chunk_move.c)
bool qy_units_take_long(unsigned n, qy_chunk_t **ret_first, bool *ret_dirty);

// Which units of the chunk may hold contents of before they were taken; of those that are free it says nothing.
qy_bits_t qy_units_old(const qy_chunk_t *chunk);

// Give units back that may lie in several chunks, from unit `first` of this one on.
void qy_units_give_long(qy_chunk_t *chunk, unsigned first, unsigned n, bool dirty);

// Units of a run, which goes on holding them until they are given: their pages went back. If that was paid for from a
// budget, who has them next pays the rest (purging.h).
void qy_units_gone(qy_chunk_t *chunk, unsigned first, unsigned n, bool from_budget);

// Take the units that follow [first, first + n) of this chunk too, also in the chunks behind it. False: they are not
// all free.
bool qy_units_extend(qy_chunk_t *chunk, unsigned first, unsigned n, unsigned more);

// Has one of the chunks of a run, of more units than a chunk has, a mapping of its own?
bool qy_units_are_separate(const qy_chunk_t *chunk, unsigned first, unsigned n);
// A long run grows elsewhere. From now on runs get no pages by moving, which would hinder that.
void qy_units_grow(void);

// Give dirty units back to the kernel: those of chunks whose epoch is at least `age` behind `epoch`
// (all with age 0), keeping at most about `keep` bytes dirty. Stops after `budget` bytes. Returns
// bytes given back. May run on a thread without TLS.
size_t qy_units_purge(uint32_t epoch, uint32_t age, size_t keep, size_t budget);

// Return the address space of wholly free chunks; for when address space has run out. Bytes.
size_t qy_units_release(void);
// The same of those that are clean, unless much more could be had than is free. For trim.
void qy_units_release_if_scarce(void);
// Is there little address space left beside what the heap has? As was seen when it last reserved some (arena.c).
// Relaxed, no lock.
bool qy_units_are_scarce(void);

// Are all chunks as they should be? NULL, or what is wrong. Takes the lock.
const char *qy_units_check(void);

qy_lock_t *qy_units_lock(void);  // for locks.c

// ---- how much the page layer has: written under its lock, read by anybody at any time ---------------------

typedef struct qy_units_counts {
    _Atomic size_t dirty_bytes;   // free, and perhaps touched
    _Atomic size_t free_bytes;    // of all units, dirty ones too
    _Atomic size_t mapped_bytes;  // of all chunks
} qy_units_counts_t;

extern QY_HIDDEN qy_units_counts_t qy_units_counts;

// Under the lock: plain arithmetic, atomic for readers.
QY_INLINE void qy_units_count(_Atomic size_t *counter, size_t add, size_t sub) {
    atomic_store_explicit(
        counter, atomic_load_explicit(counter, memory_order_relaxed) + add - sub, memory_order_relaxed);
}

QY_INLINE size_t qy_units_dirty_bytes(void) {
    return atomic_load_explicit(&qy_units_counts.dirty_bytes, memory_order_relaxed);
}
QY_INLINE size_t qy_units_free_bytes(void) {
    return atomic_load_explicit(&qy_units_counts.free_bytes, memory_order_relaxed);
}
QY_INLINE size_t qy_units_mapped_bytes(void) {
    return atomic_load_explicit(&qy_units_counts.mapped_bytes, memory_order_relaxed);
}
// In use, or free and dirty.
QY_INLINE size_t qy_units_touched_bytes(void) {
    return qy_units_mapped_bytes() - qy_units_free_bytes() + qy_units_dirty_bytes();
}

// ---- questions to a chunk's bitmaps: how many, where is the lowest, where do n in a row begin -------------

QY_INLINE qy_bits_t qy_bits_run(unsigned first, unsigned n) {  // n in 0..128
    qy_bits_t ones = n >= 128 ? ~(qy_bits_t)0 : ((qy_bits_t)1 << n) - 1;
    return ones << first;
}

QY_INLINE unsigned qy_bits_count(qy_bits_t b) {
    return (unsigned)(__builtin_popcountll((uint64_t)b) + __builtin_popcountll((uint64_t)(b >> 64)));
}
QY_INLINE unsigned qy_bits_lowest(qy_bits_t b) {  // b != 0
    return (uint64_t)b ? (unsigned)__builtin_ctzll((uint64_t)b) : 64u + (unsigned)__builtin_ctzll((uint64_t)(b >> 64));
}

// Where runs of n ones begin.
QY_INLINE qy_bits_t qy_bits_runs(qy_bits_t b, unsigned n) {
    for (unsigned have = 1; have < n && b;) {
        unsigned step = (unsigned)qy_min(have, n - have);
        b &= b >> step;
        have += step;
    }
    return b;
}

QY_INLINE unsigned qy_bits_longest(qy_bits_t b) {
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

#endif
