// SPDX-License-Identifier: MIT
// record.h: the recording of a process: its file, its threads, how it begins and how it ends.
//
// Locks, outermost first: the dynamic linker's (loaded.h), the stream of ended threads (`late`), then `lock`, which is
// held for moments only and under which nothing is called but src/os. Fork handlers take both.
// All of it is slow path; a thread that has a writer comes here once in some thousand events.
#ifndef QY_TRACE_RECORD_H
#define QY_TRACE_RECORD_H

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
    int pid;                           // of the process that is recorded
    _Atomic uint32_t *live;            // see writer.h; a page of its own
    qy_lock_t lock;                    // of what follows, up to `late_lock`
    qy_trace_file_t file;              //
    qy_writer_t *writers, *idle;       // of living threads; of ended ones
    uint32_t threads, living, search;  // numbered so far; in use; when dead ones are looked for
    qy_lock_t late_lock;               // of the stream of threads that have ended
    qy_writer_t late;                  //
    qy_trace_config_t config;          // constant once running
    _Atomic uint64_t events, lost;     // in blocks that are sealed; in all
    _Atomic uint64_t memory_due;       // when resident memory is looked at again
    const char *malloc_library;        // set by the api, constant
    qy_output_t errors;                // what descriptor 2 was at the start; constant, and a child's as well
} qy_record_t;

extern qy_record_t qy_record;

// The calling thread's writer, or one of the marks.
extern __thread qy_writer_t *qy_record_mine;
extern qy_writer_t qy_writer_new;   // has none yet
extern qy_writer_t qy_writer_off;   // is not recorded
extern qy_writer_t qy_writer_late;  // has ended: what it still does goes to the process's stream

// The calling thread's writer, whatever its state: it may be its first event, or the process's; it may be the child of
// a fork. NULL: it is not recorded (any more), it has ended, or it is in the middle of a record (which is counted as lost).
QY_COLD qy_writer_t *qy_record_writer(void);

// An event of a thread that has ended, for the process's stream. `op`: QY_OP_ALLOC, FREE or FAILED. Others of these threads may have
// written later times there: so an event is told after the call if it gets a block, and before the call if it gives one back.
typedef struct qy_event {
    unsigned op, by;
    uint64_t time;
    uint64_t size;
    uintptr_t addr;
    unsigned align_log2;
} qy_event_t;
QY_COLD void qy_record_late(const qy_event_t *event);
// That stream itself, with its lock; between take and drop records are written as by a thread. NULL: there is none.
QY_COLD qy_writer_t *qy_record_late_take(void);
void qy_record_late_drop(void);

// Is the calling thread's writer in use, so that the inline functions may be tried?
QY_INLINE bool qy_record_ready(const qy_writer_t *w) { return QY_LIKELY(atomic_load_explicit(&w->attention, memory_order_relaxed) == 0); }

// The stack that begins with `caller`; between begin and end.
QY_INLINE uint32_t qy_record_stack(qy_writer_t *w, const qy_stack_regs_t *caller);
bool qy_record_emit(void *writer, uint32_t id, uint32_t parent, uintptr_t pc, bool is_return);
QY_INLINE uint32_t qy_record_stack(qy_writer_t *w, const qy_stack_regs_t *caller) {
    return QY_LIKELY(!w->stacks) || !caller ? 0 : qy_stack_capture_from(caller, qy_record_emit, w);
}

// Begin to record the process, if its environment says so. True: it is recorded. Called again and again until it is decided.
bool qy_record_start(void);
// The process ends: everything is sealed, the end written. Threads may still run, for nothing.
void qy_record_end(int status);
// The process is about to run another program. True: that is in the trace, and the recording holds its breath until
// qy_record_exec_failed, which is called if that fails.
bool qy_record_exec(const char *program);
void qy_record_exec_failed(void);
// Something was unloaded.
void qy_record_unloaded(void);

// For writer.c: give the writer a block, *ret_bytes from `least` to `want`. False: there is none (any more).
bool qy_record_attach(qy_writer_t *w, size_t want, size_t least, size_t *ret_bytes);
// Its block is sealed: take it away. (Others look at blocks with the lock.)
void qy_record_detach(qy_writer_t *w);

// head.c: the texts of the head and of the end block.
size_t qy_record_head_text(char *buf, size_t bytes);
size_t qy_record_end_text(char *buf, size_t bytes, const char *reason, uint64_t events, uint64_t lost, uint32_t threads, uint64_t file_bytes);

#endif
