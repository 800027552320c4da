// SPDX-License-Identifier: MIT
// addrset.h: a set of addresses, each with a number, for questions asked at every free: "did we remember this block?"
//
// Of fixed size, without locks: buckets of four, each a cache line; what does not fit into its bucket may lie
// in the next one. A count for each bucket of what belongs there answers nearly all questions with one byte.
// An address is added and taken by who owns the block at that moment, so never twice at a time.
#ifndef QY_TRACE_ADDRSET_H
#define QY_TRACE_ADDRSET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

#define QY_ADDRSET_WAYS 4u

typedef struct QY_ALIGNED(QY_CACHE_LINE) qy_addrset_bucket {
    struct {
        _Atomic uintptr_t addr;  // 0: empty; 1: being filled
        _Atomic uint64_t value;
    } slot[QY_ADDRSET_WAYS];
} qy_addrset_bucket_t;

typedef struct qy_addrset {
    unsigned bits;  // 2^bits buckets; bits of an unused set are 0, with one count
    _Atomic uint8_t *counts;
    qy_addrset_bucket_t *buckets;
    size_t bytes;  // of both
} qy_addrset_t;

// False: no memory.
bool qy_addrset_make(qy_addrset_t *set, unsigned bits);
// In the child of a fork.
void qy_addrset_clear(qy_addrset_t *set);

QY_INLINE size_t qy_addrset_home(const qy_addrset_t *set, uintptr_t addr) {
    return (addr >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 1 >> (63 - set->bits);
}
// May it be there? Not, if this says no.
QY_INLINE bool qy_addrset_maybe(const qy_addrset_t *set, uintptr_t addr) {
    return QY_UNLIKELY(atomic_load_explicit(&set->counts[qy_addrset_home(set, addr)], memory_order_relaxed) != 0);
}
// False: there is no room.
bool qy_addrset_add(qy_addrset_t *set, uintptr_t addr, uint64_t value);
// False: it is not there.
bool qy_addrset_take(qy_addrset_t *set, uintptr_t addr, uint64_t *ret_value);

#endif
