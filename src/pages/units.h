// SPDX-License-Identifier: MIT
// units.h: how many units there are, and questions to a chunk's bitmaps.
#ifndef QY_PAGES_UNITS_H
#define QY_PAGES_UNITS_H

#include "pages/types.h"

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
