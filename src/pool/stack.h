// SPDX-License-Identifier: MIT
// stack.h: the stack behind <quarry/stack.h>: frames in the caller's memory, chunks in a list.
//
//   chunks:   first <-> ... <-> current <-> idle <-> idle      all before the current one hold blocks, all behind it
//   none
//                                  ^ pos
//   frames:   top -> record -> record -> 0                      each record: the one below, and pos when it was pushed
//
// The fast path knows top, pos and limit only. Push and pop save and restore top and pos; they neither know nor ask
// whether there is more to do. That there is, is said by what they compare anyway:
//
//   limit NULL    the next allocation takes the slow path: a checked or logged pool, a sealed frame, no frame at all
//                 (in a thread's stack), or a stack that waits to give memory back (see stack_chunk.c).
//   mark in top   `top` differs from the frame's address, so its pop takes the slow path:
//     LOOK        the frame has left its chunk, or its pop must look at limit
//     OPENER      limit was opened for this frame: its pop closes it, or hands the mark to the frame below
//     SEALED      nothing is allocated from this frame. Kept in `prev` of the frame inside of it
//
// Limit is opened lazily, by the first allocation that finds it closed though the frame may allocate. Invariant: while
// limit is open, a frame somewhere above the nearest sealed frame (or the bottom of a thread's stack) has OPENER, and
// OPENER moves down with each pop, so that the last frame above it closes limit again.
//
// Fresh memory. A chunk of the kernel's is zero from `clean` on. Limit is never behind that: an allocation that would
// pass it takes the slow path, which moves `clean` on. So the fast path, which clears what is asked for as zero, meets
// memory that was used before or is about to be; and blocks of many pages are not touched for zeros that are there.
//
// longjmp leaves records behind that no longer exist. They are never read: a frame that is popped is the caller's,
// so it exists, and everything needed is in it: its chunk is found by `pos`, from the current one backwards.
#ifndef QY_POOL_STACK_INTERNAL_H
#define QY_POOL_STACK_INTERNAL_H

#include <quarry/stack.h>

#include "pool/mean.h"
#include "pool/pool.h"
#include "stacks/stack.h"

#define QY_STACK_LOOK ((uintptr_t)1)
#define QY_STACK_OPENER ((uintptr_t)2)
#define QY_STACK_SEALED ((uintptr_t)4)
#define QY_STACK_MARKS ((uintptr_t)7)

#define QY_STACK_MEANS 64                              // a chunk is for so many requests of mean size, at the least,
#define QY_STACK_CHUNK_CAP ((size_t)64 * 1024 * 1024)  // up to this size
// a block that outgrows its chunk gets room for so many times its size
#define QY_STACK_GROWTH ((size_t)4)
#define QY_STACK_EDGE 8                        // this fraction of a chunk is given up
#define QY_STACK_EDGE_MAX ((size_t)64 * 1024)  // (so many bytes at most) rather than to go back to its end
#define QY_STACK_SPARE ((size_t)1024 * 1024)   // bytes of idle chunks that are kept without a question
#define QY_STACK_WINDOW ((size_t)4096)         // allocations of so many bytes are one tick while waiting
#define QY_STACK_TICK_BYTES 256                // idle bytes for which it is worth waiting one tick
#define QY_STACK_PATIENCE_MIN 256u             // ticks to wait, at the least
#define QY_STACK_PATIENCE_MAX 16384u           // and at the most, doubled for each
#define QY_STACK_REGRETS_MAX 6u                // time that memory was needed again after it went
#define QY_STACK_BUFFER_MIN ((size_t)256)
#define QY_STACK_STEP ((size_t)16 * 1024)  // `clean` goes so far beyond a small block

typedef struct qy_stack_chunk {
    struct qy_stack_chunk *prev, *next;
    char *end;
    char *pos;  // where it was left, while before the current one
    void *base;
    char *clean;  // from here to `end` all is zero
} qy_stack_chunk_t;

// A checked or recorded pool's frames with blocks: the group of their blocks. The last is the innermost. Frames that
// longjmp skipped stay until a frame outside of them ends.
typedef struct qy_stack_mark {
    uintptr_t frame;
    uint64_t group;
} qy_stack_mark_t;

typedef struct qy_stack {
    quarry_stack_t open;
    // ---- second line ----
    QY_ALIGNED(QY_CACHE_LINE)
    qy_stack_chunk_t *current;
    qy_stack_chunk_t *first;
    unsigned ticks;    // to go until idle chunks go back; 0: there is no need
    unsigned regrets;  // see stack_chunk.c
    size_t gone_back;  // bytes that went back and were not needed since
    size_t idle;       // bytes of idle chunks,
    size_t idle_low;   // and the fewest since the wait began
    qy_mean_t mean;
    size_t chunk_bytes;
    size_t buffer_bytes;         // of the caller's
    bool thread, fixed;          // of a thread; on a caller's buffer
    bool growing;                // the newest block is moving
    bool once;                   // of a thread that is ending: goes when no frame is open
    uintptr_t owner;             // of a thread's stack
    _Atomic size_t used_before;  // bytes used in chunks before the current one; also read for statistics
    _Atomic(char *) start;       // of the current one
    uint64_t got_bytes;          // of all chunks ever
    // ---- checked and recorded pools ----
    qy_stack_mark_t *marks;
    size_t nmarks, room_for_marks;
    uint64_t groups;
    // ---- stacks of threads (stack_thread.c) ----
    struct qy_stack *next_of_thread, **prev_of_thread;
    _Atomic bool busy;  // its lists are being changed: a fork's child leaves it alone
} qy_stack_t;

_Static_assert(sizeof(quarry_stack_t) <= QY_CACHE_LINE, "what allocation and frames touch is in the first cache line");
_Static_assert(offsetof(quarry_stack_hot_t, top) == 0 && offsetof(quarry_stack_hot_t, pos) == sizeof(uintptr_t) &&
                   sizeof(quarry_stack_frame_t) == 2 * sizeof(uintptr_t),
    "a frame is the stack's first two words");

static inline char *qy_stack_start(qy_stack_chunk_t *c) { return (char *)(c + 1); }
static inline size_t qy_stack_bytes(const qy_stack_chunk_t *c) { return (size_t)(c->end - (char *)c->base); }
static inline uintptr_t qy_stack_frame(uintptr_t top) { return top & ~QY_STACK_MARKS; }
// Is it a place in the current chunk, or that chunk's end?
static inline bool qy_stack_is_current(const qy_stack_t *s, const char *pos) {
    uintptr_t start = (uintptr_t)qy_stack_start(s->current);
    return (uintptr_t)pos - start <= (uintptr_t)s->current->end - start;
}
static inline void qy_stack_set_pos(quarry_stack_hot_t *h, char *pos) {
    __atomic_store_n(&h->pos, pos, __ATOMIC_RELAXED);
}
static inline void qy_stack_set_top(quarry_stack_hot_t *h, uintptr_t top) {
    __atomic_store_n(&h->top, top, __ATOMIC_RELAXED);
}

extern const quarry_pool_ops_t qy_stack_ops;

// `hot`: a thread's; NULL: its own.
qy_stack_t *qy_stack_new(const quarry_stack_options_t *options, quarry_stack_hot_t *hot);

// ---- stack_chunk.c ------------------------------------------------------------------------------------

bool qy_stack_first_chunk(qy_stack_t *s, const quarry_stack_options_t *options);
// Memory for a block of a sane size (not 0); NULL: refused, nothing has changed. *ret_clean: from there on it is zero.
void *qy_stack_take(qy_stack_t *s, size_t size, size_t alignment, char **ret_clean);
// The newest block of the current chunk ends at `pos`, in the chunk. What it was before `clean` was moved.
char *qy_stack_reach(qy_stack_t *s, char *pos);
// The last block of c, a chunk before the current one, is no longer there.
void qy_stack_shorten(qy_stack_t *s, qy_stack_chunk_t *c, char *pos);
// Go back to pos, in whatever chunk that is. True: the stack stays in a later chunk, whose beginning stands for pos.
bool qy_stack_go_back(qy_stack_t *s, char *pos);
// While idle chunks wait to go back: one tick. False: there is nothing to wait for (any more).
bool qy_stack_tick(qy_stack_t *s);
void qy_stack_put_idle(qy_stack_t *s, size_t keep);
void qy_stack_put_all(qy_stack_t *s);
// Are the chunks linked, filled and counted as they should be? NULL, or what is wrong.
const char *qy_stack_check_chunks(const qy_stack_t *s);

// ---- stack_observe.c ----------------------------------------------------------------------------------

// The group of the innermost frame's blocks, made now if it has none: then the recorder is told of the frame.
// UINT64_MAX: no memory.
uint64_t qy_stack_group(qy_stack_t *s);
// The same for a pool that is not recorded, with a mark in `top` that its frame's end has to look.
// False: it is to be made by the other, or there is no frame.
QY_INLINE bool qy_stack_has_group(qy_stack_t *s, uint64_t *ret_group) {
    quarry_stack_hot_t *h = s->open.hot;
    uintptr_t top = h->top, frame = qy_stack_frame(top);
    size_t n = s->nmarks;
    if (QY_UNLIKELY(!frame || n == s->room_for_marks)) return false;
    if (!(top & QY_STACK_LOOK) || !n || s->marks[n - 1].frame != frame) {
        s->marks[n++] = (qy_stack_mark_t){frame, ++s->groups};
        s->nmarks = n;
    }
    *ret_group = s->marks[n - 1].group;
    qy_stack_set_top(h, top | QY_STACK_LOOK | QY_STACK_OPENER);
    return true;
}
// `frame` is popped. Inner frames that were skipped end too.
void qy_stack_end_group(qy_stack_t *s, const qy_stack_regs_t *caller, uintptr_t frame, bool skipped);
// Blocks that have ended are overwritten by one that ends at `end`, in the current chunk; `turned`: that was another
// before.
void qy_stack_reused(qy_stack_t *s, char *end, bool turned);
// All frames end, with the stack.
void qy_stack_drop_marks(qy_stack_t *s);

// ---- stack_thread.c -----------------------------------------------------------------------------------

// The calling thread's, made if need be; NULL: no memory.
qy_stack_t *qy_stack_of_thread(void);
// How many there are; for tests.
uint64_t qy_stacks_of_threads(void);
// Its stack is destroyed: out of the list; the head is as in a new thread.
void qy_stack_thread_forget(qy_stack_t *s);
// Does the record of an inner frame lie in the part of the calling thread's C stack that was left by a longjmp over it,
// below `here`, where the stack stood in the function that has the outer one when it called the stack?
bool qy_stack_was_jumped_over(uintptr_t inner, uintptr_t outer, uintptr_t here);

#endif
