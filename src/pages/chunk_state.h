// SPDX-License-Identifier: MIT
// chunk_state.h: what the files of the page layer share (chunk*.c, arena.c). All under qy_units.lock.
#ifndef QY_PAGES_CHUNK_STATE_H
#define QY_PAGES_CHUNK_STATE_H

#include "pages/counts.h"
#include "pages/types.h"

#define QY_ARENA_MAX ((size_t)4 << 30)
#define QY_ARENA_CHUNKS (QY_ARENA_MAX / QY_CHUNK)

// Address space that was reserved in one piece. Chunks are opened from its start on; an address that the map cannot
// hold is passed by, and chunks that were given back leave a hole.
struct qy_arena {
    char *base;                            // at a multiple of a chunk
    uint32_t chunks, opened;               // how many it has room for, and from where on none was opened
    uint32_t present;                      // chunks that are there
    uint64_t whole[QY_ARENA_CHUNKS / 64];  // bit i: chunk i is there and wholly free
    qy_arena_t *next;
};

typedef struct qy_units_state {
    qy_lock_t lock;
    qy_chunk_t *list[QY_CHUNK_UNITS + 1];  // by longest free run; list[0] unused
    qy_bits_t lists;                       // bit i: list[i + 1] is not empty
    qy_chunk_t *all;
    qy_chunk_t *spare;   // records whose chunk was released
    qy_arena_t *arenas;  // newest first: chunks are opened in that one
    qy_arena_t *spare_arenas;
    size_t arena_next;    // bytes to reserve next
    size_t most_touched;  // bytes in use or dirty at once, ever
    uint32_t apart;       // chunks with a mapping of their own
    _Atomic bool scarce;  // [atomic] readers are racy. Address space: see qy_arena_reserve
    bool moves_denied;    // by the kernel: none is tried any more
    _Atomic bool grows;   // [atomic] a long run has grown elsewhere, so none is tried any more (chunk_move.c)
} qy_units_state_t;

extern qy_units_state_t qy_units;

// ---- chunk.c ----------------------------------------------------------------------------------

// c->free has changed: put the chunk on the list of its longest run, and say whether it is whole.
void qy_chunk_file(qy_chunk_t *c);
// Units of `run`, which are free, are free no more. Returns which of them were dirty.
qy_bits_t qy_chunk_take(qy_chunk_t *c, qy_bits_t run);
// They are free, and `dirty`, a subset, has been touched.
void qy_chunk_give(qy_chunk_t *c, qy_bits_t run, qy_bits_t dirty);
// The chunk, of which nothing is in use or free, is not in the map any more: its record waits for another.
void qy_chunk_forget(qy_chunk_t *c);

// Is the chunk as it should be? NULL, or what is wrong.
const char *qy_chunk_check(const qy_chunk_t *c);

// ---- chunk_purge.c ----------------------------------------------------------------------------

// qy_units_purge under the lock, which is let go meanwhile. The caller holds the purging lock.
size_t qy_chunks_purge(uint32_t epoch, uint32_t age, size_t keep, size_t budget);
// Units were taken. Free pages wait some time for the next request that needs them. A request that they do not fit
// would raise the peak while they serve nobody. So as many go back as come new, once the page layer has as many as it
// ever had, and as the budget allows (purging.h); below that nothing is done. The lock is let go meanwhile, perhaps.
void qy_units_grew(void);

// ---- chunk_move.c -----------------------------------------------------------------------------

// Take n units that are free, of chunk i of the arena and those behind it, perhaps with pages of other chunks. Without
// the lock meanwhile, then. False: nothing was taken, and something of it is no longer there.
bool qy_chunks_take(const qy_arena_t *a, unsigned i, unsigned n, bool *ret_dirty);

// ---- arena.c ----------------------------------------------------------------------------------

// Room for `chunks` more in the newest arena, which may be made for it. False: no address space.
bool qy_arena_reserve(unsigned chunks);
// Could the heap have much more address space than `bytes`, and the program too?
bool qy_arena_is_plenty(size_t bytes);
// The next chunk of the newest arena, all free and clean. False: no memory; what was opened before stays.
bool qy_arena_open(void);
// Give the part of the newest arena back that was never opened, and forget arenas of which nothing is left.
void qy_arena_trim(void);

QY_INLINE char *qy_arena_at(const qy_arena_t *a, unsigned i) { return a->base + (size_t)i * QY_CHUNK; }
QY_INLINE bool qy_arena_whole(const qy_arena_t *a, unsigned i) { return a->whole[i / 64] >> (i % 64) & 1; }

#endif
