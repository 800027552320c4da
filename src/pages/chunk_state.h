// SPDX-License-Identifier: MIT
// chunk_state.h: what the files of the page layer share (chunk*.c, arena.c). All under qy_units.lock.
#ifndef QY_PAGES_CHUNK_STATE_H
#define QY_PAGES_CHUNK_STATE_H

#include "pages/types.h"

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
    uint32_t separate;    // chunks with a mapping of their own
    _Atomic bool scarce;  // [atomic] readers are racy. Address space: see qy_arena_reserve
    bool moves_denied;    // by the kernel: none is tried any more
    _Atomic bool grows;   // [atomic] a long run has grown elsewhere, so none is tried any more (chunk_move.c)
} qy_units_state_t;

extern qy_units_state_t qy_units;

// ---- chunk.c ----------------------------------------------------------------------------------

// c->free has changed: put the chunk on the list of its longest run, and say whether it is whole.
void qy_chunk_relist(qy_chunk_t *c);
// Those of `run` that went back count as gone no more. Returns them.
QY_INLINE qy_gone_t qy_gone_take(qy_gone_t *gone, qy_bits_t run) {
    qy_gone_t ret = {gone->all & run, gone->old & run, gone->early & run};
    *gone = (qy_gone_t){gone->all & ~run, gone->old & ~run, gone->early & ~run};
    return ret;
}
// Units of `run`, which are free, are free no more. Returns which of them were dirty.
qy_bits_t qy_chunk_take(qy_chunk_t *c, qy_bits_t run);
// They are free, and `dirty`, a subset, has been touched.
void qy_chunk_give(qy_chunk_t *c, qy_bits_t run, qy_bits_t dirty);
// The next chunk of the newest arena, all free and clean. False: no memory; what was opened before stays.
bool qy_chunk_open(void);
// The chunk, of which nothing is in use or free, is not in the map any more: its record waits for another.
void qy_chunk_forget(qy_chunk_t *c);

// Is the chunk as it should be? NULL, or what is wrong.
const char *qy_chunk_check(const qy_chunk_t *c);

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

#endif
