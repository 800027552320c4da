// SPDX-License-Identifier: MIT
// queue.h: the order in which the blocks of a queue end that overtake each other. Blocks are numbered as they are made.
// Each ends once, less than `within` turns before or after its own.
#ifndef BENCH_QUEUE_H
#define BENCH_QUEUE_H

#include <stdint.h>

enum { QUEUE_WITHIN_MAX = 63 };

typedef struct queue {
    unsigned within;  // 1: none is overtaken; QUEUE_WITHIN_MAX at most
    uint64_t random;
    uint64_t oldest;  // the oldest number that has not ended
    uint64_t ended;   // bit k: oldest + k has
} queue_t;

// Which one ends next: one of those that have not ended and are less than `within` behind the oldest of them. So the
// oldest waits until it is drawn, but nobody passes it from farther behind.
static inline uint64_t queue_next(queue_t *q) {
    q->random = q->random * 6364136223846793005u + 1442695040888963407u;
    const unsigned from = (unsigned)((q->random >> 32) * q->within >> 32);
    const uint64_t open = ~q->ended & (((uint64_t)1 << q->within) - 1), behind = open >> from << from;
    const unsigned drawn = (unsigned)__builtin_ctzll(behind ? behind : open);
    const uint64_t number = q->oldest + drawn;
    q->ended |= (uint64_t)1 << drawn;
    const unsigned gone = (unsigned)__builtin_ctzll(~q->ended);
    q->ended >>= gone;
    q->oldest += gone;
    return number;
}

#endif
