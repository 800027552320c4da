// SPDX-License-Identifier: MIT
// bins.h: lengths into bins, for free lists that are searched in constant time.
//
// Lengths 0 to 31 have a bin each; then sixteen per power of two, so a bin's lengths differ by at most one
// sixteenth. A run of bin_above(n) or a later bin is always long enough for n.
#ifndef QY_POOL_BINS_H
#define QY_POOL_BINS_H

#include "base/compiler.h"
#include "base/num.h"

#define QY_BINS_LINEAR 32u
#define QY_BINS_LOG 5u  // of QY_BINS_LINEAR
#define QY_BINS_STEPS 16u
#define QY_BINS_STEPS_LOG 4u
// How many bins hold lengths below 2^bits.
#define QY_BINS(bits) (QY_BINS_LINEAR + ((bits)-QY_BINS_LOG) * QY_BINS_STEPS)

// The bin that a run of this length is kept in.
QY_INLINE unsigned qy_bin_of(uint64_t length) {
    if (length < QY_BINS_LINEAR) return (unsigned)length;
    unsigned log = qy_log2_floor(length);
    return QY_BINS_LINEAR + (log - QY_BINS_LOG) * QY_BINS_STEPS +
           (unsigned)(length >> (log - QY_BINS_STEPS_LOG) & (QY_BINS_STEPS - 1));
}

// The first bin whose runs are all at least this long.
QY_INLINE unsigned qy_bin_above(uint64_t length) {
    if (length < QY_BINS_LINEAR) return (unsigned)length;
    uint64_t step = UINT64_C(1) << (qy_log2_floor(length) - QY_BINS_STEPS_LOG);
    return qy_bin_of(length + step - 1);
}

// The first set bit from `from` on, or `bits`.
QY_INLINE unsigned qy_bin_next(const uint64_t *map, unsigned from, unsigned bits) {
    for (unsigned word = from / 64; from < bits; from = ++word * 64) {
        uint64_t rest = map[word] >> from % 64;
        if (rest) return from + (unsigned)__builtin_ctzll(rest);
    }
    return bits;
}

#endif
