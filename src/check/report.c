// SPDX-License-Identifier: MIT
// report.c: see report.h. One line of JSON each, written by one call, so that a reader who follows the file sees whole
// ones. Nothing is allocated; the line is made in a buffer under the lock.
#include "check/report.h"

#include <errno.h>
#include <string.h>

#include "check/frames.h"
#include "check/options.h"
#include "check/quarantine.h"
#include "check/threads.h"
#include "check/told.h"
#include "os/mapfile.h"
#include "os/output.h"
#include "os/process.h"
#include "os/tasks.h"
#include "rt/json.h"
#include "rt/opts.h"

#define IMAGES_MOST 1000u  // programs that one process may run in turn
#define COPIES_MOST 8u     // copies of the process that look for a name
#define PATH_BYTES 4096
#define LINE_BYTES ((size_t)256 << 10)  // three stacks of 256 frames, and two texts of which each character takes six

static struct {
    qy_lock_t lock;      // of all of this. Taken by report_take
    qy_output_t output;  // .fd -1: none
    bool begun, failed, ended;
    bool full;              // it could not be written to
    bool cut;               // the last line may not have its end
    _Atomic bool keeps;     // it stays open between lines; set also without the lock
    _Atomic bool filtered;  // a filter may end the process for any call but a write
    int parent;             // the process that this one is a fork of; 0: none
    int origin;             // the first in its chain of forks, which is none itself; 0: none
    char path[PATH_BYTES];
    char line[LINE_BYTES];
    uint64_t errors;
} report = {.output = {.fd = -1}};

static const char *const family_names[QY_CHECK_FAMILIES] = {[QY_CHECK_MALLOC] = "malloc",
    [QY_CHECK_CALLOC] = "calloc",
    [QY_CHECK_MEMALIGN] = "memalign",
    [QY_CHECK_REALLOC] = "realloc",
    [QY_CHECK_NEW] = "new",
    [QY_CHECK_NEW_ARRAY] = "new[]",
    [QY_CHECK_POOL] = "pool"};

qy_lock_t *qy_check_report_lock(void) { return &report.lock; }

// No signal comes to a thread that has the lock: its handler may report, search for leaks, or end the process, and
// would wait for itself. Who waits for the lock lets signals in, since a search waits for each thread to stand.
#define NOT_KEPT_OUT UINT64_MAX  // SIGKILL is in no mask
static uint64_t report_take(void) {
    if (report.filtered) {
        qy_lock_take(&report.lock);
        return NOT_KEPT_OUT;
    }
    for (;;) {
        uint64_t mask = qy_os_signals_keep_out();
        if (qy_lock_try(&report.lock) || qy_lock_is_frozen(&report.lock)) return mask;
        qy_os_signals_let_in(mask);
        qy_lock_await(&report.lock);
    }
}

static void report_drop(uint64_t mask) {
    qy_lock_drop(&report.lock);
    if (mask != NOT_KEPT_OUT) qy_os_signals_let_in(mask);
}

int qy_check_report_descriptor(void) { return report.begun && !report.full ? report.output.fd : 2; }
const char *qy_check_family_name(unsigned family) {
    return family < QY_CHECK_FAMILIES ? family_names[family] : NULL;
}

// ---- values -------------------------------------------------------------------------------------------------------

void qy_check_put_text(qy_json_t *j, const char *key, const char *text) {
    qy_json_key(j, key);
    if (text) qy_json_string(j, text, SIZE_MAX);
    else qy_json_raw(j, "null");
}
void qy_check_put_u64(qy_json_t *j, const char *key, uint64_t n) {
    qy_json_key(j, key);
    qy_json_number(j, n);
}
static void report_i64(qy_json_t *j, const char *key, int64_t n) {
    qy_json_key(j, key);
    if (n < 0) qy_json_raw(j, "-");
    qy_json_number(j, n < 0 ? -(uint64_t)n : (uint64_t)n);
}
static void report_fork(qy_json_t *j, const char *key, int pid) {
    qy_json_key(j, key);
    if (pid) qy_json_number(j, (uint64_t)pid);
    else qy_json_raw(j, "null");
}
static void report_bool(qy_json_t *j, const char *key, bool is) {
    qy_json_key(j, key);
    qy_json_raw(j, is ? "true" : "false");
}
void qy_check_put_address(qy_json_t *j, const char *key, uintptr_t address) {
    char text[24];
    qy_format(text, sizeof text, "\"%p\"", (void *)address);
    qy_json_key(j, key);
    qy_json_raw(j, text);
}

// ---- lines --------------------------------------------------------------------------------------------------------

// The file is open for a line, and from the first error on. A program that lists its descriptors, as tests of what a
// child inherits do, shall find its own. Where the path may soon lead nowhere, it is kept open from then on. A program
// that closes all descriptors has closed ours: it is opened again, by its path. Under a filter of system calls neither
// can be found out; its number is so high that hardly any program gets it again.
static bool line_can_be_written(void) {
    QY_NEEDS(&report.lock);
    if (report.failed) return false;
    if (report.filtered) return report.output.fd >= 0;
    if (report.output.fd >= 0 && qy_os_output_is(&report.output)) return true;
    return report.begun && qy_os_output_open(report.path, &report.output);
}

void qy_check_report_keep(void) {
    if (!qy_check_options.out) return;
    int saved = errno;
    atomic_store(&report.keeps, true);
    // Else a handler interrupted what writes a line, and does not close it now.
    if (!qy_lock_is_mine(&report.lock)) {
        uint64_t mask = report_take();
        line_can_be_written();
        report_drop(mask);
    }
    errno = saved;
}

bool qy_check_report_is_filtered(void) { return atomic_load(&report.filtered); }
bool qy_check_report_filtered(bool is) { return atomic_exchange(&report.filtered, is); }

// Else what is to be said is text.
static bool report_is_file(void) {
    QY_NEEDS(&report.lock);
    return report.begun && !report.full;
}

static void report_is_text(const char *why) {
    QY_NEEDS(&report.lock);
    if (!report.full) qy_warn("reports are text from here on: their file cannot %s", why);
    report.full = true;
}

// The program may have all descriptors that it is allowed (ulimit -n). A copy of the process has none of them.
static bool done_by_copy(bool (*fn)(size_t bytes), size_t bytes) {
    QY_NEEDS(&report.lock);
    bool done = false;
    long copy = report.filtered ? -1 : qy_os_copy();
    if (copy == 0) {
        qy_os_copy_keep_only(-1);
        qy_os_copy_end(!fn(bytes));
    }
    return copy > 0 && qy_os_copy_ended((int)copy, true, &done) && done;
}

static bool line_put_in_copy(size_t bytes) {
    const qy_output_t output = {.fd = qy_os_open_append(report.path)};
    return output.fd >= 0 && qy_os_output_write(&output, report.line, bytes);
}

// The limit of file sizes is the program's, and so is the signal that comes of it.
static void line_put(size_t bytes) {
    QY_NEEDS(&report.lock);
    if (!line_can_be_written()) {
        if (!done_by_copy(line_put_in_copy, bytes)) report_is_text("be opened");
    } else {
        report.cut = !qy_os_output_write(&report.output, report.line, bytes);
        if (report.cut) report_is_text("grow (ulimit -f, or a full disk)");
    }
}

static void line_write_json(qy_json_t *j) {
    QY_NEEDS(&report.lock);
    qy_json_raw(j, "}\n");
    if (!j->full) line_put(qy_json_length(j));
    if (!report.keeps) qy_os_output_close(&report.output);
}

static void line_start(qy_json_t *j, const char *what) {
    QY_NEEDS(&report.lock);
    qy_json_begin(j, report.line, sizeof report.line);
    qy_json_raw(j, report.cut ? "\n{" : "{");
    qy_json_key(j, what);
}

static void put_command(qy_json_t *j) {
    static char arguments[8192];
    size_t bytes = qy_os_command_line(arguments, sizeof arguments);
    qy_json_key(j, "command");
    qy_json_raw(j, "[");
    for (size_t at = 0; at < bytes;) {
        size_t n = strnlen(arguments + at, bytes - at);
        if (at) qy_json_raw(j, ",");
        qy_json_string(j, arguments + at, n);
        at += n + 1;
    }
    qy_json_raw(j, "]");
}

static int file_create(void) { return qy_os_file_open(report.path, QY_FILE_WRITE | QY_FILE_CREATE); }
static bool file_create_in_copy(size_t unused) {
    (void)unused;
    return file_create() >= 0;
}

// The next name that nobody has: a process may run several programs, one after the other.
static bool report_create(void) {
    QY_NEEDS(&report.lock);
    char folder[PATH_BYTES - 64];
    if (!qy_opts_str(qy_check_options.out, folder, sizeof folder)) return false;
    int pid = qy_os_process_id();
    for (unsigned n = 1; n <= IMAGES_MOST; n++) {
        qy_format(report.path, sizeof report.path, "%s/%d.%u.check", folder, pid, n);
        int fd = file_create();
        // A copy does not say why it could not.
        if (fd == -EMFILE && n <= COPIES_MOST) fd = done_by_copy(file_create_in_copy, 0) ? 0 : -EEXIST;
        if (fd == -EEXIST) continue;
        if (fd < 0) break;
        if (fd) qy_os_close(fd);
        if (*report.path != '/') report.keeps = true;  // the program may change its folder
        return true;
    }
    qy_warn("no reports: cannot create %s", report.path);
    return false;
}

static void report_begin_locked(void) {
    QY_NEEDS(&report.lock);
    static char path[PATH_BYTES];
    if (report.begun || report.failed || !qy_check_options.out) return;
    report.failed = !report_create();
    if (report.failed) return;
    report.begun = true;
    qy_json_t j;
    line_start(&j, "begin");
    qy_json_raw(&j, "{");
    qy_check_put_u64(&j, "version", 1);
    qy_check_put_u64(&j, "pid", (uint64_t)qy_os_process_id());
    qy_check_put_u64(&j, "ppid", (uint64_t)qy_os_parent_id());
    qy_check_put_text(&j, "exe", qy_os_program_path(path, sizeof path) ? path : NULL);
    put_command(&j);
    report_fork(&j, "forked_from", report.parent);
    report_fork(&j, "origin", report.origin);
    qy_json_raw(&j, "}");
    line_write_json(&j);
}

uint64_t qy_check_report_hold(void) {
    uint64_t mask = report_take();
    report_begin_locked();
    return mask;
}
void qy_check_report_let_go(uint64_t mask) { report_drop(mask); }

void qy_check_report_begin(void) { qy_check_report_let_go(qy_check_report_hold()); }

static void module_tell(qy_check_module_t *m) {
    QY_NEEDS(&report.lock);
    if (atomic_exchange(&m->told, true)) return;
    qy_json_t j;
    line_start(&j, "module");
    qy_json_raw(&j, "{");
    qy_check_put_u64(&j, "id", m->id);
    qy_check_put_text(&j, "path", m->path);
    if (!qy_json_is_utf8(m->path)) {
        qy_json_key(&j, "path_hex");
        qy_json_hex(&j, m->path, strlen(m->path));
    }
    qy_json_key(&j, "build_id");
    qy_json_hex(&j, m->build_id, m->id_bytes);
    qy_check_put_address(&j, "begin", m->begin);
    qy_check_put_address(&j, "end", m->end);
    qy_check_put_address(&j, "bias", m->bias);
    report_bool(&j, "gone", m->gone);
    qy_json_raw(&j, "}");
    line_write_json(&j);
}

// Before the first line that names them.
static void modules_tell(uint32_t stack) {
    for (qy_check_frame_t f; stack;) {
        stack = qy_check_frame(stack, &f);
        if (f.module && !qy_check_frame_is_ours(&f)) module_tell(f.module);
    }
}

void qy_check_put_stack(qy_json_t *j, uint32_t stack) {
    qy_json_key(j, "stack");
    qy_json_raw(j, "[");
    for (bool first = true; stack;) {
        qy_check_frame_t f;
        stack = qy_check_frame(stack, &f);
        if (qy_check_frame_is_ours(&f)) continue;
        qy_json_raw(j, first ? "{" : ",{");
        first = false;
        qy_check_put_address(j, "pc", f.pc);
        report_bool(j, "exact", f.exact);
        qy_json_key(j, "module");
        if (f.module) qy_json_number(j, f.module->id);
        else qy_json_raw(j, "null");
        qy_json_raw(j, "}");
    }
    qy_json_raw(j, "]");
}

static void put_event(qy_json_t *j, const char *key, uint32_t thread, uint32_t stack) {
    qy_json_key(j, key);
    qy_json_raw(j, "{");
    qy_check_put_u64(j, "tid", thread);
    qy_check_put_stack(j, stack);
    qy_json_raw(j, "}");
}

static void put_block(qy_json_t *j, const qy_check_fault_t *f) {
    const qy_check_block_t *b = &f->block;
    qy_json_key(j, "block");
    if (!f->has_block) {
        qy_json_raw(j, "null");
        return;
    }
    qy_json_raw(j, "{");
    qy_check_put_address(j, "address", b->address);
    qy_check_put_u64(j, "size", b->size);
    qy_check_put_text(j, "family", qy_check_family_name(b->family));
    qy_check_put_text(j, "pool", b->pool);
    qy_check_put_text(j, "pool_kind", b->pool_kind);
    qy_check_put_text(j, "state", b->freed ? "freed" : "live");
    qy_check_put_u64(j, "ordinal", b->ordinal);
    put_event(j, "alloc", b->alloc_thread, b->alloc_stack);
    if (b->freed) put_event(j, "free", b->free_thread, b->free_stack);
    else {
        qy_json_key(j, "free");
        qy_json_raw(j, "null");
    }
    qy_json_raw(j, "}");
}

static void error_write(const qy_check_fault_t *f, uint32_t stack) {
    QY_NEEDS(&report.lock);
    char name[32];
    qy_json_t j;
    modules_tell(stack);
    if (f->has_block) {
        modules_tell(f->block.alloc_stack);
        modules_tell(f->block.free_stack);
    }
    line_start(&j, "error");
    qy_json_raw(&j, "{");
    qy_check_put_text(&j, "kind", f->kind);
    qy_check_put_text(&j, "function", f->function);
    qy_check_put_address(&j, "address", f->address);
    report_bool(&j, "write", f->is_write);
    qy_check_put_u64(&j, "bytes", f->bytes);
    report_bool(&j, "evidence", f->is_evidence);
    report_i64(&j, "offset", f->offset);
    qy_check_put_text(&j, "detail", f->detail);
    qy_json_key(&j, "thread");
    qy_json_raw(&j, "{");
    qy_check_put_u64(&j, "tid", (uint64_t)qy_os_thread_id_quietly());
    bool known = !report.filtered && qy_os_thread_name(name, sizeof name);
    qy_check_put_text(&j, "name", known ? name : NULL);
    qy_json_raw(&j, "}");
    qy_check_put_stack(&j, stack);
    put_block(&j, f);
    qy_json_raw(&j, "}");
    line_write_json(&j);
}

// ---- reports ------------------------------------------------------------------------------------------------------

// A signal handler may have interrupted a report of this thread, or its look at the file: then what it has to say is
// lost.
static bool report_enter(void) {
    qy_check_thread_t *t = &qy_check_thread;
    if (t->reporting || qy_lock_is_mine(&report.lock)) return false;
    return t->reporting = true;
}

// Within a function of the C library that this library stands before?
static bool stack_is_inside(uint32_t stack) {
    for (qy_check_frame_t f; stack;) {
        stack = qy_check_frame(stack, &f);
        if (qy_check_frame_is_ours(&f)) return true;
    }
    return false;
}

static void error_tell(const qy_check_fault_t *f, uint32_t stack) {
    QY_NEEDS(&report.lock);
    report.errors++;
    report.keeps = true;
    report_begin_locked();
    if (report_is_file()) error_write(f, stack);
    if (!report_is_file()) qy_check_text(f, stack);
}

void qy_check_report(const qy_check_fault_t *f, const qy_stack_regs_t *from) {
    int saved = errno;
    if (!report_enter()) return;
    uint32_t stack = qy_check_stack(from);
    qy_check_frames_look();
    uint64_t mask = report_take();
    bool told = qy_check_told(f, from && stack_is_inside(stack));
    if (!told) error_tell(f, stack);
    report_drop(mask);
    if (qy_check_options.abort && !told) {
        qy_check_report_end("abort", 134);
        qy_os_abort();
    }
    qy_check_thread.reporting = false;
    errno = saved;
}

void qy_check_note(const char *text) {
    int saved = errno;
    if (!report_enter()) return;
    uint64_t mask = qy_check_report_hold();
    if (report_is_file()) {
        qy_json_t j;
        line_start(&j, "note");
        qy_json_raw(&j, "{");
        qy_check_put_text(&j, "text", text);
        qy_json_raw(&j, "}");
        line_write_json(&j);
    }
    if (!report_is_file()) qy_warn("%s", text);
    report_drop(mask);
    qy_check_thread.reporting = false;
    errno = saved;
}

bool qy_check_report_line(const char *what, uint32_t stack, void (*fill)(qy_json_t *j, void *arg), void *arg) {
    bool held = qy_lock_is_mine(&report.lock);
    uint64_t mask = held ? 0 : qy_check_report_hold();
    bool told = report_is_file();
    if (told) {
        qy_json_t j;
        modules_tell(stack);
        line_start(&j, what);
        qy_json_raw(&j, "{");
        fill(&j, arg);
        qy_json_raw(&j, "}");
        line_write_json(&j);
        told = report_is_file();
    }
    if (!held) report_drop(mask);
    return told;
}

static void put_guards(qy_json_t *j, const qy_guard_stats_t *g) {
    qy_json_key(j, "guards");
    qy_json_raw(j, "{");
    qy_check_put_u64(j, "made", g->made);
    qy_check_put_u64(j, "refused", g->refused);
    qy_check_put_u64(j, "live", g->live);
    qy_check_put_u64(j, "turns", g->turns);
    qy_check_put_u64(j, "marks", qy_guard_is_by_marks());
    qy_json_raw(j, "}");
}

// A child that had nothing to say has no file.
void qy_check_report_end(const char *how, int status) {
    qy_guard_stats_t g;
    qy_guard_get_stats(&g);
    qy_check_quarantine_stats_t q = qy_check_quarantine_stats();
    uint64_t mask = report_take();
    if (report.begun && !report.ended) {
        qy_json_t j;
        line_start(&j, "end");
        qy_json_raw(&j, "{");
        qy_check_put_text(&j, "how", how);
        qy_check_put_u64(&j, "status", (uint64_t)(unsigned)status & 0xff);
        qy_check_put_u64(&j, "errors", report.errors);
        qy_check_put_u64(&j, "suppressed_repeats", 0);
        qy_json_key(&j, "quarantine");
        qy_json_raw(&j, "{");
        qy_check_put_u64(&j, "blocks", q.blocks);
        qy_check_put_u64(&j, "bytes", q.bytes);
        qy_check_put_u64(&j, "passed", q.passed);
        qy_check_put_u64(&j, "limit", q.limit);
        qy_json_raw(&j, "}");
        put_guards(&j, &g);
        qy_json_raw(&j, "}");
        line_write_json(&j);
        report.ended = true;
    }
    report_drop(mask);
}

void qy_check_report_goes_on(void) {
    uint64_t mask = report_take();
    report.ended = false;
    report_drop(mask);
}

void qy_check_report_in_child(int parent) {
    if (!report.filtered) qy_os_output_close(&report.output);  // the parent's
    report.output.fd = -1;
    report.begun = report.ended = report.full = report.cut = false;
    report.failed = report.filtered;  // it can open none; what it has to say is text
    report.errors = 0;
    report.parent = parent;
    // A reader may never hear of the processes in between: one that has nothing to say has no file.
    if (!report.origin) report.origin = parent;
    qy_check_modules_untold();
}
