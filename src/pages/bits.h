// SPDX-License-Identifier: MIT
// bits.h: questions to a chunk's bitmaps: how many, where is the lowest, where do n in a row begin.
#ifndef QY_PAGES_BITS_H
#define QY_PAGES_BITS_H

#include "pages/types.h"

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
