// SPDX-License-Identifier: MIT
// record.c: see record.h. How a recording begins, goes on in a child, stops, and ends.
#include "trace/record.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "os/mapfile.h"
#include "os/os.h"
#include "os/process.h"
#include "os/streams.h"
#include "rt/diag.h"
#include "trace/births.h"
#include "trace/modules.h"
#include "trace/recording.h"
#include "trace/sample.h"
#include "trace/threads.h"
#include "trace/usage.h"
#include "trace/written.h"

#define HEAD_BYTES 67000  // two paths of which each character takes six, the command, and what is short
#define IMAGES_MOST 1000  // programs that one process may run in turn

qy_record_t qy_record;
qy_writer_t qy_writer_new = {.attention = QY_ATTENTION_NOBODY};
qy_writer_t qy_writer_off = {.attention = QY_ATTENTION_NOBODY};
qy_writer_t qy_writer_late = {.attention = QY_ATTENTION_NOBODY};
__thread qy_writer_t *qy_record_mine = &qy_writer_new;

static int record_state(void) { return atomic_load_explicit(&qy_record.state, memory_order_acquire); }

// A program may close descriptor 2, and get the number for a file of its own: then nobody is told.
static bool is_heard(void) { return qy_os_output_is(&qy_record.errors); }

static const char *reason_of(int error) {
    switch (-error) {
    case ENOSPC: return "disk full";
    case EDQUOT: return "disk quota used up";
    case EFBIG: return "limit on file size";
    case EBADF: return "its file was closed";
    case ENOENT: return "no such folder";
    case EACCES:
    case EPERM: return "permission denied";
    case EROFS: return "read-only file system";
    case EMFILE:
    case ENFILE: return "too many open files";
    case ENOMEM: return "no memory";
    case ENAMETOOLONG: return "its name is too long";
    case ENOTSUP: return "not a regular file";
    default: return "input/output error";
    }
}

// ---- the end ------------------------------------------------------------------------------------------------

#define END_BYTES 512

// With the lock.
static size_t end_text(char text[END_BYTES], const char *reason) {
    uint64_t events = atomic_load(&qy_record.events) + qy_threads_open_events();
    return qy_record_end_text(
        text, END_BYTES, reason, events, atomic_load(&qy_record.lost), qy_record.threads, qy_record.file.offset);
}
static void record_write_end(const char *reason) {
    char text[END_BYTES];
    qy_trace_file_end(&qy_record.file, text, end_text(text, reason));
}

// No more events can be stored. The program goes on; what is mapped stays until it ends, since threads may be in it.
QY_COLD static void stop(const qy_writer_t *self, int error) {
    int running = QY_RECORD_RUNNING;
    if (!atomic_compare_exchange_strong(&qy_record.state, &running, QY_RECORD_STOPPED)) return;
    atomic_store(qy_record.live, 0);
    atomic_fetch_add(&qy_record.lost, 1);  // the one that found no room; of those to come none is counted
    qy_threads_settle(self);
    qy_lock_take(&qy_record.lock);
    uint64_t events = atomic_load(&qy_record.events) + qy_threads_open_events();
    record_write_end(reason_of(error));
    qy_lock_drop(&qy_record.lock);
    if (!is_heard()) return;
    qy_warn("recording stopped: %s. %l event%S of process %d went to %s; the program goes on", reason_of(error),
        events, qy_record.pid, qy_record.file.path);
}

void qy_record_tell_full(qy_writer_t *w) {
    static const char note[] = "no room for more call stacks: later blocks may have none";
    if (!w->stacks || !qy_stacks_full() || atomic_exchange(&qy_record.stacks_full, true)) return;
    qy_write_text(w, QY_OP_MARK, 0, qy_os_ticks(), NULL, note, sizeof note - 1);
    if (is_heard()) qy_warn("process %d: %s", qy_record.pid, note);
}

void qy_record_end(int status, const char *how) {
    int was = record_state();
    // A child of vfork that calls exit() is in its parent's memory.
    if ((was != QY_RECORD_RUNNING && was != QY_RECORD_STOPPED) || qy_os_process_id() != qy_record.pid) return;
    // Of a fork without handlers, in a namespace in which it has its parent's number: the end has its place in the
    // parent's file.
    if (was == QY_RECORD_RUNNING && !atomic_load(qy_record.live)) return;
    // exit() in a signal handler, in the middle of our work: as if killed
    if (qy_lock_is_mine(&qy_record.lock)) return;
    qy_writer_t *w = qy_record_mine;
    bool writes = qy_record_ready(w);
    if (writes && qy_writer_begin(w)) {
        qy_modules_write(w);
        qy_thread_tell_name(w);
        qy_record_tell_full(w);
        qy_usage_tell_end(w);
        qy_writer_write_lost(w);
        qy_write_numbers(w, QY_OP_PROCESS, QY_PROCESS_EXIT, qy_os_ticks(), 1, (uint64_t)(unsigned)status & 0xff, 0);
        qy_writer_seal(w);
    }
    if (writes) qy_writer_end(w);
    atomic_store(&qy_record.state, QY_RECORD_ENDED);
    atomic_store(qy_record.live, 0);
    if (qy_threads_settle(w)) qy_threads_seal(was == QY_RECORD_RUNNING);
    qy_lock_take(&qy_record.lock);
    record_write_end(how);
    qy_trace_file_close(&qy_record.file);
    qy_lock_drop(&qy_record.lock);
}

// Bytes of a text of the program's that can be read: what cannot be is for the kernel to refuse.
static size_t readable_length(const char *text) {
    const size_t page = 4096;  // the smallest there is
    size_t n = 0;
    while (n < QY_TRACE_PATH_BYTES && qy_os_readable(text + n)) {
        size_t part = qy_min(page - ((uintptr_t)(text + n) & (page - 1)), QY_TRACE_PATH_BYTES - n),
               length = strnlen(text + n, part);
        n += length;
        if (length < part) return n;
    }
    return n;
}

// Until the call has failed, no thread gets a block (they will end with it), and what a signal handler does is lost. A
// child of vfork is in its parent's memory, and its program is not the parent's.
bool qy_record_exec(const char *program) {
    qy_writer_t *w = qy_record_mine;
    if (record_state() != QY_RECORD_RUNNING || qy_os_process_id() != qy_record.pid || !qy_record_ready(w)) return false;
    if (!qy_writer_begin(w)) {
        qy_writer_end(w);
        return false;
    }
    qy_modules_write(w);
    qy_thread_tell_name(w);
    qy_record_tell_full(w);
    qy_write_text(w, QY_OP_PROCESS, QY_PROCESS_EXEC, qy_os_ticks(), NULL, program, readable_length(program));
    char text[END_BYTES];
    qy_lock_take(&qy_record.lock);
    qy_trace_file_try_end(&qy_record.file, text, end_text(text, "exec"));
    return true;
}

void qy_record_exec_failed(void) {
    int saved = errno, error = qy_trace_file_go_on(&qy_record.file);
    qy_lock_drop(&qy_record.lock);
    if (error) stop(qy_record_mine, error);
    qy_writer_end(qy_record_mine);
    errno = saved;
}

static void at_exit(int status, void *arg) {
    (void)arg;
    qy_record_end(status, "exit");
}
static _Atomic int quick_status;
void qy_record_quick_status(int status) { atomic_store(&quick_status, status); }
static void at_quick_exit_(void) { qy_record_end(atomic_load(&quick_status), "quick_exit"); }
#ifndef __GLIBC__  // musl does not tell handlers the status
static void at_plain_exit(void) { at_exit(0, NULL); }
#define on_exit(fn, arg) atexit(at_plain_exit)
#endif

// ---- fork ---------------------------------------------------------------------------------------------------

// A fork in a signal handler finds a lock taken by the code that was interrupted: it is left alone then.
static void record_fork_prepare(void) {
    qy_os_streams_hold();
    qy_modules_freeze();
    qy_lock_fork(&qy_record.late_lock, 0);
    qy_lock_fork(&qy_record.lock, 0);
}

static void record_fork_parent(void) {
    qy_lock_fork(&qy_record.lock, 1);
    qy_lock_fork(&qy_record.late_lock, 1);
    qy_modules_thaw();
    qy_os_streams_let_go();
}

// In the child: by the handler, or at its first event if there was none. The file and what is mapped of it are the
// parent's.
static void become_child(void) {
    bool recorded = record_state() == QY_RECORD_RUNNING;
    if (record_state() == QY_RECORD_COLD) return;
    qy_threads_forget();
    qy_births_forget();
    qy_lock_reset(&qy_record.lock);
    qy_lock_reset(&qy_record.late_lock);
    qy_trace_modules_restart();
    qy_trace_file_forget(&qy_record.file);
    qy_record_mine = recorded && qy_record.config.follow ? &qy_writer_new : &qy_writer_off;
    atomic_store(&qy_record.state, recorded && qy_record.config.follow ? QY_RECORD_COLD : QY_RECORD_OFF);
    atomic_store(&qy_record.events, 0);
    atomic_store(&qy_record.lost, 0);
    atomic_store(&qy_record.memory_due, 0);
    atomic_store(&qy_record.stacks_full, false);
    if (qy_record.config.stacks != QY_STACKS_NONE) qy_stacks_restart();
    qy_sample_restart();
    qy_written_restart();
}

static void record_fork_child(void) {
    qy_os_streams_in_child();
    become_child();
}

// ---- the beginning --------------------------------------------------------------------------------------------

static bool configure(void) {
    static char inherited[sizeof qy_record.config.file + 256];
    const char *text = qy_os_getenv(QY_TRACE_VARIABLE);
    if (!text || !qy_trace_config_parse(&qy_record.config, text)) return false;
    int pid = qy_os_process_id();
    if (qy_record.config.pid) return qy_record.config.pid == pid || qy_record.config.follow;
    qy_record.config.pid = pid;
    if (qy_trace_config_inherit(text, pid, inherited, sizeof inherited))
        qy_os_replace_env(QY_TRACE_VARIABLE, inherited);
    return true;
}

// What is needed once, also if children go on.
static bool record_prepare(void) {
    qy_os_output_know(2, &qy_record.errors);
    size_t page = qy_os_page_size();
    qy_record.live = qy_os_map(page, page, NULL);
    if (!qy_record.live || !qy_os_wipe_on_fork((void *)(uintptr_t)qy_record.live, page)) {
        qy_warn("nothing is recorded: this kernel cannot keep memory from children");
        return false;
    }
    qy_os_ticks_init();
    qy_os_barrier_prepare();
    qy_trace_modules_begin();
    if (qy_record.config.stacks != QY_STACKS_NONE && !qy_stacks_start(qy_record.config.stacks, 0))
        qy_warn("no memory for call stacks: none are recorded");
    if (qy_record.config.sample && !qy_sample_start()) return false;
    qy_large_start();
    qy_written_start();
    pthread_atfork(record_fork_prepare, record_fork_parent, record_fork_child);
    // Registered before the program's own, so called after them; not as a destructor, since those of other libraries
    // would come later.
    on_exit(at_exit, NULL);
    at_quick_exit(at_quick_exit_);
    return true;
}

static bool is_regular(const char *path) {
    qy_file_stat_t st = {.regular = true};  // if it can't be opened
    int fd = qy_os_file_open(path, 0);
    if (fd < 0) return true;
    qy_os_file_stat(fd, &st);
    qy_os_close(fd);
    return st.regular;
}

// A name that exists is another program's that ran in this process before, or of an earlier run.
static int create_file(void) {
    static char head[HEAD_BYTES], path[QY_TRACE_PATH_BYTES];
    char program[16];
    size_t bytes = qy_record_head_text(head, sizeof head);
    qy_os_program_name(program, sizeof program);
    int error = -EEXIST;
    for (unsigned again = 1; again <= IMAGES_MOST && error == -EEXIST; again++) {
        if (!qy_trace_config_path(&qy_record.config, qy_record.pid, program, again, path, sizeof path))
            return -ENAMETOOLONG;
        error = qy_trace_file_create(&qy_record.file, path, qy_record.pid, head, bytes);
        if (error == -EEXIST && !is_regular(path)) return -ENOTSUP;
    }
    return error;
}

static bool record_begin(void) {
    if (!qy_record.live && (!configure() || !record_prepare())) return false;
    qy_record.pid = qy_os_process_id();
    int error = create_file();
    if (error) {
        const char *path = qy_record.file.path[0] ? qy_record.file.path : qy_record.config.file;
        if (is_heard()) qy_warn("nothing is recorded: cannot write %s: %s", path, reason_of(error));
        return false;
    }
    memset(&qy_record.late, 0, sizeof qy_record.late);
    qy_writer_init(&qy_record.late);
    atomic_store(qy_record.live, 1);
    return true;
}

bool qy_record_start(void) {
    int was = QY_RECORD_COLD;
    if (record_state() == QY_RECORD_RUNNING) return true;
    if (!qy_os_environment_known() || !atomic_compare_exchange_strong(&qy_record.state, &was, QY_RECORD_STARTING))
        return false;
    bool begun = record_begin();
    atomic_store(&qy_record.state, begun ? QY_RECORD_RUNNING : QY_RECORD_OFF);
    return begun;
}

// ---- blocks -----------------------------------------------------------------------------------------------------

bool qy_record_attach(qy_writer_t *w, size_t want, size_t least, size_t *ret_bytes) {
    int error = 0;
    qy_lock_take(&qy_record.lock);
    bool running = record_state() == QY_RECORD_RUNNING;
    w->block = running ? qy_trace_file_take(&qy_record.file, want, least, ret_bytes, &error) : NULL;
    qy_lock_drop(&qy_record.lock);
    if (error && error != -ENOMEM) stop(w, error);
    return running && !error;
}

void qy_record_detach(qy_writer_t *w) {
    qy_lock_take(&qy_record.lock);
    atomic_fetch_add_explicit(&qy_record.events, w->block->events, memory_order_relaxed);
    w->block = NULL;
    qy_lock_drop(&qy_record.lock);
}

// ---- threads without a writer -----------------------------------------------------------------------------------

// The calling thread has no writer yet. While it is made the thread is off the record: what is allocated for it is not
// the program's.
static qy_writer_t *record_enter(void) {
    qy_record_mine = &qy_writer_off;
    qy_writer_t *w = qy_record_start() ? qy_thread_enter() : NULL;
    if (w) return w;
    int now = record_state();
    if (now == QY_RECORD_COLD || now == QY_RECORD_STARTING || now == QY_RECORD_RUNNING) qy_record_mine = &qy_writer_new;
    return NULL;
}

static qy_writer_t *find_writer(void) {
    qy_writer_t *w = qy_record_mine;
    if (w == &qy_writer_off || w == &qy_writer_late) return NULL;
    if (w != &qy_writer_new) {
        if (atomic_load_explicit(&w->attention, memory_order_relaxed) & QY_ATTENTION_WRITING) {
            qy_writer_lose(w, QY_LOST_REENTERED);
            return NULL;
        }
        if (atomic_load_explicit(w->live, memory_order_relaxed)) return w;
        // of a fork without handlers
        if (record_state() == QY_RECORD_RUNNING && qy_os_process_id() != qy_record.pid) become_child();
        else qy_record_mine = &qy_writer_off;  // stopped
        if (qy_record_mine == &qy_writer_off) return NULL;
    }
    // a signal handler in a thread that begins: the lock comes back after it only
    if (qy_lock_is_mine(&qy_record.lock)) {
        atomic_fetch_add(&qy_record.lost, 1);
        return NULL;
    }
    return record_enter();
}

qy_writer_t *qy_record_writer(void) {
    int saved = errno;
    qy_writer_t *w = find_writer();
    errno = saved;
    return w;
}

// pthread_create allocates, so a thread that creates another has a writer soon anyway.
uint32_t qy_record_number(void) {
    qy_writer_t *w = qy_record_mine;
    if (w == &qy_writer_new) w = qy_record_writer();
    if (!w || atomic_load_explicit(&w->attention, memory_order_relaxed) & (QY_ATTENTION_NOBODY | QY_ATTENTION_WRITING))
        return 0;
    return atomic_load_explicit(w->live, memory_order_relaxed) ? w->thread : 0;
}

static void write_event(qy_writer_t *w, const qy_event_t *e) {
    if (e->op == QY_OP_ALLOC) qy_write_alloc(w, e->by, e->time, e->size, e->addr, e->align_log2, 0);
    else if (e->op == QY_OP_FREE) qy_write_free(w, e->by, e->time, e->addr);
    else qy_write_numbers(w, e->op, e->by, e->time, 1, e->size, 0);
}

qy_writer_t *qy_record_late_take(void) {
    if (record_state() != QY_RECORD_RUNNING) return NULL;
    int saved = errno;
    qy_writer_t *w = NULL;
    if (!atomic_load(qy_record.live) && qy_os_process_id() != qy_record.pid) become_child();
    else if (qy_lock_is_mine(&qy_record.late_lock)) atomic_fetch_add(&qy_record.lost, 1);
    else {
        w = &qy_record.late;
        qy_lock_take(&qy_record.late_lock);
    }
    errno = saved;
    return w;
}

void qy_record_late_drop(void) { qy_lock_drop(&qy_record.late_lock); }

void qy_record_late(const qy_event_t *event) {
    qy_writer_t *w = qy_record_late_take();
    if (!w) return;
    int saved = errno;
    if (qy_writer_begin(w)) write_event(w, event);
    qy_writer_end(w);
    qy_record_late_drop();
    errno = saved;
}

bool qy_record_emit(void *writer, uint32_t id, uint32_t parent, uintptr_t pc, bool is_return) {
    qy_modules_before_node(writer, id);
    return qy_write_stack(writer, id, parent, pc, is_return);
}

void qy_record_thread_name(void) {
    qy_writer_t *w = qy_record_mine;
    int saved = errno;
    if (qy_record_ready(w)) {
        if (qy_writer_begin(w)) qy_thread_tell_name(w);
        qy_writer_end(w);
    }
    errno = saved;
}

void qy_record_closing(void) {
    qy_writer_t *w = qy_record_mine;
    int saved = errno;
    qy_modules_closing();
    if (qy_record_ready(w)) {
        if (qy_writer_begin(w)) qy_modules_write(w);
        qy_writer_end(w);
    }
    errno = saved;
}

void qy_record_closed(void) {
    qy_writer_t *w = qy_record_mine;
    int saved = errno;
    bool writes = qy_record_ready(w), lives = writes && qy_writer_begin(w);
    qy_modules_closed(lives ? w : NULL);
    if (writes) qy_writer_end(w);
    errno = saved;
}

// What the parent knows of a child is of use only where children have traces.
static void record_ended(unsigned kind, const uint64_t *numbers, unsigned count) {
    if (!qy_record.config.follow) return;
    int saved = errno;
    qy_writer_t *w = qy_record_mine;
    if (!qy_record_ready(w)) w = qy_record_writer();
    if (w) {
        if (qy_writer_begin(w)) qy_write_extension(w, kind, numbers, count);
        qy_writer_end(w);
    }
    errno = saved;
}

void qy_record_child(int process, int status) {
    record_ended(QY_EXTENSION_CHILD, (const uint64_t[]){(unsigned)process, (unsigned)status}, 2);
}

void qy_record_hidden_child(int status, uint64_t began_ns) {
    record_ended(QY_EXTENSION_HIDDEN_CHILD, (const uint64_t[]){(unsigned)status, began_ns, qy_os_now_ns()}, 3);
}
