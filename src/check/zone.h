// SPDX-License-Identifier: MIT
// zone.h: what lies behind the bytes that a block was asked for, and what a freed block holds.
//
//   | asked for        | slack ... | zone, 16 bytes or more |
//   | the program's    |   the canary: all of this          |
//
// The canary comes from a secret and the address, so that no copy of one makes another. None of its bytes is zero but
// one of the last eight: a string that runs out of its block ends there, and a zero that is written behind a block is
// seen. The zone of a block lies before the next block, so what an underflow of that writes is seen there.
// Of a large object the canary is its first 4 KiB of slack.
#ifndef QY_CHECK_ZONE_H
#define QY_CHECK_ZONE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

#define QY_CHECK_ZONE ((size_t)16)
#define QY_CHECK_ZONE_MOST ((size_t)4096)

// Chooses the secret. Before any block.
void qy_check_zone_begin(void);

// Where the canary of a block of n bytes with so much room ends.
static inline size_t qy_check_zone_end(size_t n, size_t room) {
    return room - n > QY_CHECK_ZONE_MOST ? n + QY_CHECK_ZONE_MOST : room;
}

// A word of the canary is its seed without zeros. The seed of the next word is QY_CHECK_SEED_STEP more, so that a loop
// over words has no multiplication.
extern QY_HIDDEN uint64_t qy_check_secret;
#define QY_CHECK_SEED_FACTOR UINT64_C(0x9E3779B97F4A7C15)
#define QY_CHECK_SEED_STEP (8 * QY_CHECK_SEED_FACTOR)
#define QY_CHECK_NO_ZERO UINT64_C(0x0101010101010101)
QY_INLINE uint64_t qy_check_seed(uintptr_t at) { return qy_check_secret + at * QY_CHECK_SEED_FACTOR; }
// The last one has its zero in the lowest byte.
QY_INLINE uint64_t qy_check_zone_last(uint64_t seed) { return (seed | QY_CHECK_NO_ZERO) & ~UINT64_C(0xFF); }

// Another thread may look at the canary of a neighbour while that changes: it finds by the record that it did.
QY_INLINE uint64_t qy_check_zone_load(uintptr_t at) {
    return __atomic_load_n((const uint64_t *)at, __ATOMIC_RELAXED);
}
QY_INLINE void qy_check_zone_store(uintptr_t at, uint64_t word) {
    __atomic_store_n((uint64_t *)at, word, __ATOMIC_RELAXED);
}
// Of the word that holds byte n, the bytes from n on.
QY_INLINE uint64_t qy_check_mask_from(size_t n) { return ~UINT64_C(0) << 8 * (n % 8); }

// Write it. n + QY_CHECK_ZONE <= room; room is a multiple of 8.
void qy_check_zone_make(uintptr_t block, size_t n, size_t room);
// The same of a block that the program has: it may write to the word in which the block ends.
void qy_check_zone_mend(uintptr_t block, size_t n, size_t room);

// A stretch of bytes that are not what they were, as offsets from the block's begin; first == last: there is none.
typedef struct qy_check_damage {
    size_t first, last;  // last: behind it
} qy_check_damage_t;
qy_check_damage_t qy_check_zone_look(uintptr_t block, size_t n, size_t room);
// Is none of it changed? A few instructions for each word. No branch depends on what is read.
QY_INLINE bool qy_check_zone_is_good(uintptr_t block, size_t n, size_t room) {
    size_t first = n & ~(size_t)7;
    uintptr_t at = block + first, last = block + qy_check_zone_end(first, room) - 8;
    uint64_t seed = qy_check_seed(at);
    uint64_t difference = (qy_check_zone_load(at) ^ (seed | QY_CHECK_NO_ZERO)) & qy_check_mask_from(n);
    for (at += 8, seed += QY_CHECK_SEED_STEP; at < last; at += 8, seed += QY_CHECK_SEED_STEP)
        difference |= qy_check_zone_load(at) ^ (seed | QY_CHECK_NO_ZERO);
    return !(difference | (qy_check_zone_load(last) ^ qy_check_zone_last(seed)));
}
// The same of the last QY_CHECK_ZONE bytes alone.
QY_INLINE bool qy_check_zone_end_is_good(uintptr_t block, size_t n, size_t room) {
    uintptr_t at = block + qy_check_zone_end(n & ~(size_t)7, room) - QY_CHECK_ZONE;
    uint64_t seed = qy_check_seed(at);
    return !((qy_check_zone_load(at) ^ (seed | QY_CHECK_NO_ZERO)) |
             (qy_check_zone_load(at + 8) ^ qy_check_zone_last(seed + QY_CHECK_SEED_STEP)));
}

// A freed block is filled: all of it up to 16 KiB, of a longer one 4 KiB at each end and in a place between that the
// secret chooses. The word is no address on any processor, so who follows it as a pointer faults.
#define QY_CHECK_FILL UINT64_C(0xF7F7F7F7F7F7F7F7)
void qy_check_fill(uintptr_t block, size_t n);
qy_check_damage_t qy_check_fill_look(uintptr_t block, size_t n);
bool qy_check_fill_is_good(uintptr_t block, size_t n);  // sooner

#endif
