// SPDX-License-Identifier: MIT
// ring.h: the ring behind <quarry/ring.h>: chunks filled one after the other, frames with records elsewhere.
//
//   chunk | head | frame 1 | frame 2 .... | frame 3 (open) -> pos ............ end |
//   record of each frame, in a table of the process: generation and state, in one word
//
// The word's states, and who changes them:
//
//   FREE --newframe--> OPEN --seal--> SEALED --release--> RELEASED --(owner finds it)--> FREE, next generation
//                                        \--destroy--> ORPHAN --release--> RELEASED
//
// newframe, seal and destroy are the owner's; release is anybody's: one compare-and-swap SEALED -> RELEASED, and
// no other access to the ring. The number of a frame has the generation in it, so a second release or a stale number
// finds another word than it expects. Records are never given back to the kernel: it is always safe to look.
//
// Each chunk has the list of frames that began in it, and the number of the one that came over from the
// chunk before. The owner alone walks these lists; it looks when it needs a chunk (ring_chunk.c):
// a chunk is empty when all these frames are RELEASED, whatever the frames before and behind it do.
//
// Destroy: `orphans` counts the frames turned into ORPHANs, plus one while destroy is at work; who brings it to zero
// gives the chunks back. A release that comes first finds SEALED and is not counted.
// tests/pool/models/ring_release.pml checks release, reuse and destroy against each other.
//
// There is no lock. All fields are the owner's unless said otherwise; after destroy, the last release's.
#ifndef QY_POOL_RING_H
#define QY_POOL_RING_H

#include <quarry/ring.h>

#include "pool/pool.h"

#define QY_RING_CHUNK_MIN ((size_t)64 * 1024)
#define QY_RING_CHUNK_MAX ((size_t)2 * 1024 * 1024)  // growth stops here; a larger option or request does not
#define QY_RING_ALIGN_MAX ((size_t)4096)
#define QY_RING_LOOK_FRONT 4  // oldest chunks looked at when one is needed,
#define QY_RING_LOOK_ON 4     // and others, going round
#define QY_RING_PERIOD 256    // frames between two looks at what is free for long
#define QY_RING_CLEAN_AHEAD 1024

// ---- frames (ring_frame.c) ---------------------------------------------------------------------------

enum { QY_FRAME_FREE,
    QY_FRAME_OPEN,
    QY_FRAME_SEALED,
    QY_FRAME_WATCHED,
    QY_FRAME_ORPHAN,
    QY_FRAME_RELEASED };
// WATCHED is SEALED in a ring that is checked or logged: the ordinary release fails on it and goes the long way.

// A word has the state where the number has the index of the record.
#define QY_FRAME_INDEX_BITS 24
#define QY_FRAME_INDEX_MASK ((UINT64_C(1) << QY_FRAME_INDEX_BITS) - 1)
#define QY_FRAME_STATE(word) ((unsigned)((word)&QY_FRAME_INDEX_MASK))
#define QY_FRAME_GENERATION(word) ((word) >> QY_FRAME_INDEX_BITS)

// A cache line each: frames are released by many threads.
typedef struct qy_ring_frame {
    QY_ALIGNED(QY_CACHE_LINE)
    _Atomic uint64_t word;       // generation (40 bits, never 0) and state
    struct qy_ring *ring;        // constant from newframe to FREE
    struct qy_ring_frame *next;  // of those that began in the same chunk, or free ones
    uint64_t group;              // of its blocks, in a checked ring; constant while it is open or sealed
    uint32_t index;              // constant
} qy_ring_frame_t;

#define QY_FRAME_SEGMENT 4096u
#define QY_FRAME_SEGMENTS 4096u
extern _Atomic(qy_ring_frame_t *) qy_frame_segments[QY_FRAME_SEGMENTS];

// The record a number names; NULL: none such was ever made.
static inline qy_ring_frame_t *qy_frame_of(quarry_ring_frame_t number) {
    uint32_t index = (uint32_t)(number & QY_FRAME_INDEX_MASK);
    qy_ring_frame_t *segment = atomic_load_explicit(&qy_frame_segments[index / QY_FRAME_SEGMENT], memory_order_acquire);
    return segment ? segment + index % QY_FRAME_SEGMENT : NULL;
}
static inline uint64_t qy_frame_word(quarry_ring_frame_t number, unsigned state) {
    return (number & ~QY_FRAME_INDEX_MASK) | state;
}
static inline quarry_ring_frame_t qy_frame_number(const qy_ring_frame_t *f) {
    return (atomic_load_explicit(&f->word, memory_order_relaxed) & ~QY_FRAME_INDEX_MASK) | f->index;
}
// Are the blocks of the frame with this number there? (0: no frame.) Acquire: what its users wrote has been written.
static inline bool qy_frame_lives(quarry_ring_frame_t number) {
    if (!number) return false;
    uint64_t word = atomic_load_explicit(&qy_frame_of(number)->word, memory_order_acquire);
    return QY_FRAME_GENERATION(word) == number >> QY_FRAME_INDEX_BITS && QY_FRAME_STATE(word) != QY_FRAME_RELEASED;
}

// Some free records, chained, from the table of the process; NULL: no memory. And back.
qy_ring_frame_t *qy_frames_get(void);
void qy_frames_put(qy_ring_frame_t *first);

// ---- the ring -----------------------------------------------------------------------------------------

typedef struct qy_ring_chunk {
    qy_list_t link;                  // of `left` or `free`; in none while current
    char *end, *dirty;               // of its blocks; from `dirty` on all is zero
    char *pos;                       // where it was left
    qy_ring_frame_t *first, **last;  // frames that began here and are not known to be released, oldest first
    quarry_ring_frame_t carried;     // came over from the chunk before; 0: none
    struct qy_ring_chunk *older;     // of the open frame; the chunk it began in is not in this list
    void *base;
    size_t bytes;
} qy_ring_chunk_t;

typedef struct qy_ring {
    quarry_ring_t hot;
    qy_ring_frame_t *open;         // the open frame
    qy_ring_frame_t *free_frames;  // records for frames to come
    // ---- second line ----
    char *pos, *end;  // of the current chunk; hot.pos stands in for pos while a frame is open and nothing observed
    char *dirty;
    qy_ring_chunk_t *current, *newest;  // newest: taken for the open frame since it began
    qy_ring_chunk_t *began;             // where the open frame began,
    char *frame_start;                  // from here on
    uintptr_t owner;
    uint32_t countdown;               // newframes until the next look
    quarry_ring_frame_t last_sealed;  // 0: there has been no frame
    // ---- chunks ----
    qy_list_t left, free;           // left: oldest first; free: used last first
    qy_list_t *cursor;              // where the next look at `left` goes on
    size_t nleft, nfree, free_low;  // free_low: the fewest in `free` since the last look
    size_t chunk_bytes;
    _Atomic size_t used_left;       // bytes in `left`, also read for statistics
    _Atomic uint64_t bytes_left;    // bytes ever given out in chunks that were left
    _Atomic(char *) current_start;  // for statistics
    _Atomic size_t orphans;         // see above; others' too
    uint64_t groups;                // of a checked ring: frames that ever began
    // ---- recorded rings (ring_trace.c) ----
    char **traced;  // blocks of the open frame, oldest first; NULL in place of one that moved
    size_t ntraced, room_for_traced;
} qy_ring_t;

_Static_assert(
    offsetof(qy_ring_t, pos) <= QY_CACHE_LINE, "allocation and the ends of frames begin in the first cache line");
_Static_assert(sizeof(qy_ring_frame_t) == QY_CACHE_LINE, "a line for each frame's record");

static inline char *qy_ring_start(qy_ring_chunk_t *c) { return (char *)(c + 1); }
// Does the fast path see the position?
static inline bool qy_ring_plain(const qy_ring_t *r) { return r->open && r->hot.pool.mode == 0; }
static inline char *qy_ring_pos(const qy_ring_t *r) { return qy_ring_plain(r) ? r->hot.pos : r->pos; }
static inline void qy_ring_set_pos(qy_ring_t *r, char *pos) {
    __atomic_store_n(&r->pos, pos, __ATOMIC_RELAXED);
    if (qy_ring_plain(r)) __atomic_store_n(&r->hot.pos, pos, __ATOMIC_RELAXED);
}

// ---- ring_chunk.c -----------------------------------------------------------------------------------

bool qy_ring_first_chunk(qy_ring_t *r);
// Room for the open frame. True: the current chunk, which may be a new one, has it; or *ret_block is a block of a
// chunk of its own, in which all is zero from *ret_dirty on. False: no memory, nothing has changed.
bool qy_ring_turn(qy_ring_t *r, size_t size, size_t alignment, char **ret_block, char **ret_dirty);
// Chunks the open frame has taken since `newest` was its newest: free again.
void qy_ring_untake(qy_ring_t *r, qy_ring_chunk_t *newest, qy_ring_chunk_t *current, char *pos);
// Records of released frames of the current chunk and a few others become free.
void qy_ring_recall(qy_ring_t *r);
// Each QY_RING_PERIOD frames: half of what was not needed all the time goes back.
void qy_ring_period(qy_ring_t *r);
// Look at all chunks; all free ones go back.
void qy_ring_give_back(qy_ring_t *r);
// All chunks, whatever lies in them, and all records of frames.
void qy_ring_put_all(qy_ring_t *r);

// ---- ring_check.c -----------------------------------------------------------------------------------

// NULL, or what is wrong with chunks and frames; with the second also of what is promised to be zero.
const char *qy_ring_check_chunks(qy_ring_t *r);
const char *qy_ring_check(quarry_pool_t *pool);

// ---- ring_trace.c: the recorder is told ----------------------------------------------------------------

// A block of the open frame, of a counted ring. Returns p.
QY_COLD void *qy_ring_trace_alloc(qy_ring_t *r, size_t size, size_t alignment, char *p);
// `old` is at p now. NULL: it was refused. Returns p.
QY_COLD void *qy_ring_trace_resized(qy_ring_t *r, char *old, size_t size, char *p);
// Blocks since the mark, which is good, end; before that is done.
QY_COLD void qy_ring_trace_rewind(qy_ring_t *r, const quarry_ring_mark_t *mark);
QY_COLD void qy_ring_trace_drop(qy_ring_t *r);

// ---- ring_thread.c ----------------------------------------------------------------------------------

// The ring ends: if it is the calling thread's own, that has none any more.
void qy_ring_thread_forget(const qy_ring_t *r);
// The stand-in of threads that have no ring yet: full, never written to.
extern qy_ring_t qy_ring_none;
extern const quarry_pool_ops_t qy_ring_ops;

#endif
