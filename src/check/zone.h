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

#define QY_CHECK_ZONE ((size_t)16)
#define QY_CHECK_ZONE_MOST ((size_t)4096)

// Chooses the secret. Before any block.
void qy_check_zone_begin(void);

// Where the canary of a block of n bytes with so much room ends.
static inline size_t qy_check_zone_end(size_t n, size_t room) {
    return room - n > QY_CHECK_ZONE_MOST ? n + QY_CHECK_ZONE_MOST : room;
}
// Write it. n + QY_CHECK_ZONE <= room; room is a multiple of 8.
void qy_check_zone_make(uintptr_t block, size_t n, size_t room);
// The same of a block that the program has: it may write to the word in which the block ends.
void qy_check_zone_mend(uintptr_t block, size_t n, size_t room);

// A stretch of bytes that are not what they were, as offsets from the block's begin; first == last: there is none.
typedef struct qy_check_damage {
    size_t first, last;  // last: behind it
} qy_check_damage_t;
qy_check_damage_t qy_check_zone_look(uintptr_t block, size_t n, size_t room);
// The same of the last QY_CHECK_ZONE bytes alone. A few instructions.
bool qy_check_zone_end_is_good(uintptr_t block, size_t n, size_t room);

// A freed block is filled: all of it up to 16 KiB, of a longer one 4 KiB at each end and in a place between that the
// secret chooses. The word is no address on any processor, so who follows it as a pointer faults.
#define QY_CHECK_FILL UINT64_C(0xF7F7F7F7F7F7F7F7)
void qy_check_fill(uintptr_t block, size_t n);
qy_check_damage_t qy_check_fill_look(uintptr_t block, size_t n);

#endif
