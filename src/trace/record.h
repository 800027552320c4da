// SPDX-License-Identifier: MIT
// record.h: the recording of a process: its file, its threads, how it begins and how it ends.
//
// All of it is slow path; a thread that has a writer comes here once in some thousand events.
#ifndef QY_TRACE_RECORD_H
#define QY_TRACE_RECORD_H

#include "trace/recording.h"
#include "stacks/stacks.h"
#include "trace/writer.h"

// The calling thread's writer, whatever its state: it may be its first event, or the process's; it may be the child of
// a fork. NULL: it is not recorded (any more), it has ended, or it is in the middle of a record (which is counted as
// lost).
QY_COLD qy_writer_t *qy_record_writer(void);

// An event of a thread that has ended, for the process's stream. `op`: QY_OP_ALLOC, FREE or FAILED. Others of these
// threads may have written later times there: so an event is told after the call if it gets a block, and before the
// call if it gives one back.
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
QY_INLINE bool qy_record_ready(const qy_writer_t *w) {
    return QY_LIKELY(atomic_load_explicit(&w->attention, memory_order_relaxed) == 0);
}

// The time of an event. A process with one thread need not wait for its loads (ticks.h). One that gets a block from
// another thread gets it by a load, and what this thread has stored before is seen by the load that follows here.
QY_INLINE uint64_t qy_record_now(void) {
    return qy_os_ticks_if(atomic_load_explicit(&qy_record.shared, memory_order_relaxed));
}

// The stack that begins with `caller`; between begin and end.
QY_INLINE uint32_t qy_record_stack(qy_writer_t *w, const qy_stack_regs_t *caller);
bool qy_record_emit(void *writer, uint32_t id, uint32_t parent, uintptr_t pc, bool is_return);
QY_INLINE uint32_t qy_record_stack(qy_writer_t *w, const qy_stack_regs_t *caller) {
    return QY_LIKELY(!w->stacks) || !caller ? 0 : qy_stack_capture_outside(caller, qy_record_emit, w);
}

// The calling thread's number, for a thread that it creates. 0: it is not recorded. One that has not allocated yet gets
// it now.
uint32_t qy_record_number(void);

// Begin to record the process, if its environment says so. True: it is recorded. Called again and again until it is
// decided.
bool qy_record_start(void);
// The process ends: everything is sealed, the end written. Threads may still run, for nothing. `how`: the function that
// ends it, as the end of the trace calls it.
void qy_record_end(int status, const char *how);
// What quick_exit was called with: its handlers are not told.
void qy_record_quick_status(int status);
// The calling thread may have another name now.
void qy_record_thread_name(void);
// The process is about to run another program. True: that is in the trace, and the recording holds its breath until
// qy_record_exec_failed, which is called if that fails.
bool qy_record_exec(const char *program);
void qy_record_exec_failed(void);
// Something is about to be unloaded, and was, or was not.
void qy_record_closing(void);
void qy_record_closed(void);
// A child that was waited for has ended, with this status as wait() gives it: the trace says so if children are
// recorded.
void qy_record_child(int process, int status);

// A child that the C library made and waited for by itself has ended, within a call that began at this time. Its
// process id is not known. Keeps errno.
void qy_record_hidden_child(int status, uint64_t began_ns);

// head.c: the texts of the head and of the end block.
size_t qy_record_head_text(char *buf, size_t bytes);
size_t qy_record_end_text(
    char *buf, size_t bytes, const char *reason, uint64_t events, uint64_t lost, uint32_t threads, uint64_t file_bytes);

#endif
