// SPDX-License-Identifier: MIT
// writer.h: a thread's stream of records. START HERE for the recorder: this is its fast path.
//
// Each thread has a writer, and no two threads share one: to write a record takes no lock, no atomic
// read-modify-write and no system call. The records go straight into a block of the file, which is mapped; when they
// are stored the kernel has them, and a process that is killed loses no more than the record it was writing.
//
// Three words make that safe:
//  - `attention` is 0 while nothing special is going on. WRITING while a record is made: a signal handler that
//    allocates meanwhile, or code of ours that does, is found out by it, and counted as lost. HIDING while the
//    program is within a function whose inner calls are part of it (api/record_malloc.c).
//  - `*live` is 1 while the process is recorded. It lies in a page that is zero in the child of any fork, also one that
//    runs no handlers, so that a child never writes into its parent's file.
//  - who ends the recording clears `*live`, makes every running thread pass a barrier, and then waits for those whose
//    `attention` says WRITING; a thread looks at `*live` after it has said so, and begins nothing any more.
#ifndef QY_TRACE_WRITER_H
#define QY_TRACE_WRITER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"
#include "os/ticks.h"
#include "trace/encode.h"

#define QY_ATTENTION_WRITING 1u
#define QY_ATTENTION_HIDING 2u
#define QY_HIDES_ALL ((uintptr_t)1)
#define QY_HIDES_NEW ((uintptr_t)2)          // one allocation: operator new is made of it
#define QY_HIDES_ALIGNED_NEW ((uintptr_t)3)  // the same
#define QY_ATTENTION_NOBODY 4u               // no thread's writer: one of the marks in record.h

typedef struct QY_ALIGNED(QY_CACHE_LINE) qy_writer {
    _Atomic uint32_t attention;
    uint32_t thread;  // number; 0 for the process's own
    const _Atomic uint32_t *live;
    uint8_t *at, *limit;  // the next record; up to here there is room for one. at > limit without a block
    // NULL: none, or none to be had at the moment. Set with the lock of record.h, read by the thread without
    qy_trace_block_t *block;
    uint64_t time;  // of the last record
    uint64_t skip;  // sampling: so many bytes more are not recorded; else 0
    // with HIDING: what of the inner calls belongs to the outer one: QY_HIDES_*, or a block that is freed
    uintptr_t hides;
    size_t hides_size;  // of the operator new
    uint64_t previous[QY_KINDS];
    uint64_t previous_pc;
    uint32_t previous_stack;
    bool stacks;    // to be captured
    bool samples;   // are recorded only
    bool scanning;  // the list of modules is being written
    bool quiet;     // at the end: writes no more (threads.c)
    // The slow path's:
    uint32_t sequence;
    int thread_id;                          // the kernel's; 0: this writer is not in use
    uint64_t lost[QY_LOST_TABLE_FULL + 1];  // not yet said, by reason
    uint64_t chance;                        // state of the sampler's generator
    uint64_t unwatched;                     // bytes until a block is watched (written.h)
    char name[16];                          // of the thread, as it was told last; "": never, it is the program's
    unsigned without;                       // events since a block could not be had
    struct qy_writer *next, *next_idle;     // all writers; those without a thread (threads.c)
} qy_writer_t;

// Begin a record: false if the process is not recorded (any more). Every begin has an end.
QY_INLINE bool qy_writer_begin(qy_writer_t *w) {
    atomic_store_explicit(&w->attention, QY_ATTENTION_WRITING, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    return QY_LIKELY(atomic_load_explicit(w->live, memory_order_relaxed) != 0);
}
QY_INLINE void qy_writer_end(qy_writer_t *w) { atomic_store_explicit(&w->attention, 0, memory_order_release); }

// A zeroed one, with its number, is made ready.
void qy_writer_init(qy_writer_t *w);
// Between begin and end: another block, with room for a record and `more` bytes. False: there is none.
QY_COLD bool qy_writer_turn(qy_writer_t *w, size_t more);
// The block is complete and goes; nothing if there is none. Also for who ends the recording, with the lock of record.c.
void qy_writer_seal(qy_writer_t *w);
// An event is not in the trace. A record says so when there is room, at the latest in the next block.
QY_COLD void qy_writer_lose(qy_writer_t *w, qy_trace_lost_t reason);
void qy_writer_write_lost(qy_writer_t *w);

// Where a record may be written, of which all but a text has QY_RECORD_MOST bytes; NULL: it is lost.
QY_INLINE uint8_t *qy_writer_room(qy_writer_t *w) {
    if (QY_LIKELY(w->at <= w->limit)) return w->at;
    return qy_writer_turn(w, 0) ? w->at : NULL;
}

// The record is whole. `used` comes last: up to there the block can be read at any time.
QY_INLINE void qy_writer_commit(qy_writer_t *w, uint8_t *at) {
    qy_trace_block_t *b = w->block;
    w->at = at;
    atomic_store_explicit(&b->events, atomic_load_explicit(&b->events, memory_order_relaxed) + 1, memory_order_relaxed);
    atomic_store_explicit(&b->used, (uint32_t)(at - (uint8_t *)(b + 1)), memory_order_release);
}

// Times of a thread never go back: what was read before a call may be older than records that the call made.
QY_INLINE uint8_t *qy_put_time(uint8_t *at, qy_writer_t *w, uint64_t now) {
    uint64_t dt = now > w->time ? now - w->time : 0;
    w->time += dt;
    return qy_put(at, dt);
}

// ---- records: all between begin and end --------------------------------------------------------------------

QY_INLINE void qy_write_alloc(
    qy_writer_t *w, unsigned by, uint64_t now, uint64_t size, uintptr_t addr, unsigned align_log2, uint32_t stack) {
    uint8_t *at = qy_writer_room(w);
    if (QY_UNLIKELY(!at)) return;
    at = qy_put_tag(at, QY_OP_ALLOC, by | (stack ? QY_V_STACK : 0));
    at = qy_put_time(at, w, now);
    at = qy_put(at, size);
    at = qy_put_address(at, &w->previous[qy_trace_kind_of(size)], addr);
    if (by == QY_BY_MEMALIGN || by == QY_BY_ALIGNED_NEW) at = qy_put(at, align_log2);
    if (stack) at = qy_put(at, stack);
    qy_writer_commit(w, at);
}

QY_INLINE void qy_write_free(qy_writer_t *w, unsigned by, uint64_t now, uintptr_t addr) {
    uint8_t *at = qy_writer_room(w);
    if (QY_UNLIKELY(!at)) return;
    at = qy_put_tag(at, QY_OP_FREE, by);
    at = qy_put_time(at, w, now);
    if (by != QY_FREE_NULL) at = qy_put_address(at, &w->previous[QY_KIND_FREE], addr);
    qy_writer_commit(w, at);
}

QY_INLINE void qy_write_realloc(
    qy_writer_t *w, uint64_t now, uint64_t took, uintptr_t old, uint64_t size, uintptr_t addr, uint32_t stack) {
    uint8_t *at = qy_writer_room(w);
    if (QY_UNLIKELY(!at)) return;
    at = qy_put_tag(at, QY_OP_REALLOC, (old == addr) | (stack ? QY_V_STACK : 0));
    at = qy_put_time(at, w, now);
    at = qy_put(at, took);
    at = qy_put_address(at, &w->previous[QY_KIND_FREE], old);
    at = qy_put(at, size);
    if (old != addr) at = qy_put_address(at, &w->previous[qy_trace_kind_of(size)], addr);
    if (stack) at = qy_put(at, stack);
    qy_writer_commit(w, at);
}

// Operations whose fields are one or two numbers after the time.
void qy_write_numbers(
    qy_writer_t *w, unsigned op, unsigned variant, uint64_t now, unsigned count, uint64_t first, uint64_t second);
// And those with a number and a text; of none of them if `number` is NULL.
void qy_write_text(qy_writer_t *w, unsigned op, unsigned variant, uint64_t now, const uint64_t *number,
    const char *text, size_t bytes);
void qy_write_touched(qy_writer_t *w, uint64_t bytes);
void qy_write_zeroed(qy_writer_t *w, uint64_t now, uint64_t size, uintptr_t addr, uint64_t resident);
// An extension of at most so many numbers. A difference of time of 0 is put before them: it is of the time of the
// record before.
#define QY_EXTENSION_NUMBERS 8u
void qy_write_extension(qy_writer_t *w, unsigned kind, const uint64_t *numbers, unsigned count);
bool qy_write_stack(qy_writer_t *w, uint32_t id, uint32_t parent, uintptr_t pc, bool is_return);

#endif
