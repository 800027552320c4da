// SPDX-License-Identifier: MIT
// moves.h: what moves.c and the malloc below its recorder, moves_malloc.c, say to each other.
#ifndef TESTS_TRACE_MOVES_H
#define TESTS_TRACE_MOVES_H

#include <stddef.h>

// Blocks of these sizes lie at the place, if nobody else's does.
#define MOVES_SMALL ((size_t)4321)
#define MOVES_LARGE ((size_t)200000)

typedef struct moves {
    void *place;
    size_t bytes;          // of it
    void (*left)(void);    // called by a realloc that has given the place back, before it returns
    void (*throws)(void);  // called by operator new, instead of all else
} moves_t;

moves_t *moves(void);

#endif
