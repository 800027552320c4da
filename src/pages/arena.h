// SPDX-License-Identifier: MIT
// arena.h: address space for chunks, reserved in pieces that grow, and opened chunk by chunk; for a long run
// several are made writable at once. All under the page
// layer's lock.
#ifndef QY_PAGES_ARENA_H
#define QY_PAGES_ARENA_H

#include "pages/types.h"

#define QY_ARENA_MAX ((size_t)4 << 30)
#define QY_ARENA_CHUNKS (QY_ARENA_MAX / QY_CHUNK)

// Address space that was reserved in one piece. Chunks are opened from its start on; an address that the map cannot
// hold is passed by, and chunks that were given back leave a hole.
struct qy_arena {
    char *base;                            // at a multiple of a chunk
    uint32_t chunks, opened;               // how many it has room for, and from where on none was opened
    uint32_t writable;                     // up to here chunks are, also some that are not opened yet
    uint32_t present;                      // chunks that are there
    uint64_t whole[QY_ARENA_CHUNKS / 64];  // bit i: chunk i is there and wholly free
    qy_arena_t *next;
};

// Room for `chunks` more in the newest arena, which may be made for it. False: no address space.
bool qy_arena_reserve(unsigned chunks);
// Could the heap have much more address space than `bytes`, and the program too?
bool qy_arena_is_plenty(size_t bytes);
// One call makes the next `chunks` of the newest arena writable, which has room for them; each is still to be entered.
// False: nothing has changed.
bool qy_arena_commit(unsigned chunks);
// Those that were not entered then are only address space again.
void qy_arena_uncommit(void);
// The chunk is the next one of the newest arena from here on: clean pages, and an entry in the map. False: no memory;
// what was entered before stays.
bool qy_arena_enter(qy_chunk_t *c);
// Give the part of the newest arena back that was never opened, and forget arenas of which nothing is left.
void qy_arena_trim(void);

QY_INLINE char *qy_arena_at(const qy_arena_t *a, unsigned i) { return a->base + (size_t)i * QY_CHUNK; }
QY_INLINE bool qy_arena_whole(const qy_arena_t *a, unsigned i) { return a->whole[i / 64] >> (i % 64) & 1; }

#endif
