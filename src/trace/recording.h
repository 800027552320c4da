// SPDX-License-Identifier: MIT
// recording.h: what there is of a recording: its file, its writers, its locks. What happens to it is in record.h.
//
// Locks, outermost first: the dynamic linker's (loaded.h), the stream of ended threads (`late`), then `lock`, which is
// held for moments only and under which nothing is called but src/os. Fork handlers take both.
#ifndef QY_TRACE_RECORDING_H
#define QY_TRACE_RECORDING_H

#include "os/output.h"
#include "rt/lock.h"
#include "trace/config.h"
#include "trace/file.h"
#include "trace/writer.h"

typedef enum qy_record_state {
    QY_RECORD_COLD,  // not begun: nobody has asked, or the process doesn't know its environment yet
    QY_RECORD_STARTING,
    QY_RECORD_RUNNING,
    QY_RECORD_OFF,      // not wanted
    QY_RECORD_STOPPED,  // for good, before its time: the disk is full...
    QY_RECORD_ENDED,    // with the process
} qy_record_state_t;

typedef struct qy_record {
    _Atomic int state;
    int pid;                        // of the process that is recorded
    _Atomic uint32_t *live;         // see writer.h; a page of its own
    _Atomic bool shared;            // a second thread has a writer, or had: blocks may be handed over
    qy_lock_t lock;                 // of what follows, up to `late_lock`
    qy_trace_file_t file;           //
    qy_writer_t *writers, *idle;    // of living threads; of ended ones
    uint32_t threads, search;       // numbered so far; when dead ones are looked for
    _Atomic uint32_t living;        // in use. Changed with the lock, read without (usage.c)
    qy_lock_t late_lock;            // of the stream of threads that have ended
    qy_writer_t late;               //
    qy_trace_config_t config;       // constant once running
    _Atomic uint64_t events, lost;  // in blocks that are sealed; in all
    _Atomic uint64_t memory_due;    // when resident memory is looked at again, in nanoseconds
    _Atomic uint64_t memory_ticks;  // and not before this, in ticks
    _Atomic uint32_t traits;        // QY_TRAIT_* of the program; none is taken back
    _Atomic bool stacks_full;       // it was told that no more call stacks have room
    const char *malloc_library;     // set by the api, constant
    qy_output_t errors;             // what descriptor 2 was at the start; constant, and a child's as well
} qy_record_t;

extern qy_record_t qy_record;

// The calling thread's writer, or one of the marks.
extern __thread qy_writer_t *qy_record_mine;
extern qy_writer_t qy_writer_new;   // has none yet
extern qy_writer_t qy_writer_off;   // is not recorded
extern qy_writer_t qy_writer_late;  // has ended: what it still does goes to the process's stream

// For writer_turn.c: give the writer a block, *ret_bytes from `least` to `want`. False: there is none (any more).
bool qy_record_attach(qy_writer_t *w, size_t want, size_t least, size_t *ret_bytes);
// Its block is sealed: take it away. (Others look at blocks with the lock.)
void qy_record_detach(qy_writer_t *w);
// If the tree of call stacks is full, that is told, once. Between begin and end.
void qy_record_tell_full(qy_writer_t *w);

#endif
