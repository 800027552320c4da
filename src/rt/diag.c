// SPDX-License-Identifier: MIT
// diag.c: messages. Each is put together in a buffer on the stack and written by one system call,
// so that lines of several threads do not mix.
#include "rt/diag.h"

#include <stdarg.h>
#include <stdatomic.h>

#include "base/num.h"
#include "os/os.h"

#define LINE_BYTES 512
#define STDERR 2

// ---- the formatter ------------------------------------------------------------------------------

typedef struct diag_out {
    char *at, *end;  // end: where the final NUL must fit
} diag_out_t;

static void put_char(diag_out_t *o, char c) {
    if (o->at < o->end) *o->at++ = c;
}

static void put_string(diag_out_t *o, const char *s) {
    for (s = s ? s : "(null)"; *s; s++) put_char(o, *s);
}

static void put_number(diag_out_t *o, uint64_t n, unsigned base) {
    char digits[20];  // 2^64 has 20
    int count = 0;
    do digits[count++] = "0123456789abcdef"[n % base];
    while (n /= base);
    while (count) put_char(o, digits[--count]);
}

// The list is passed on by address: on some processors va_list is an array and cannot be copied.
static void put_format(diag_out_t *o, const char *format, va_list *args) {
    uint64_t count = 0;  // the last %u, %z or %l
    for (; *format; format++) {
        if (*format != '%') {
            put_char(o, *format);
            continue;
        }
        switch (*++format) {
        case 's': put_string(o, va_arg(*args, const char *)); break;
        case 'd': {
            int n = va_arg(*args, int);
            if (n < 0) put_char(o, '-');
            put_number(o, n < 0 ? 0u - (unsigned)n : (unsigned)n, 10);
            break;
        }
        case 'u': put_number(o, count = va_arg(*args, unsigned), 10); break;
        case 'x': put_number(o, va_arg(*args, unsigned), 16); break;
        case 'z': put_number(o, count = va_arg(*args, size_t), 10); break;
        case 'l': put_number(o, count = va_arg(*args, uint64_t), 10); break;
        case 'S':
            if (count != 1) put_char(o, 's');
            break;
        case 'p':
            put_string(o, "0x");
            put_number(o, (uintptr_t)va_arg(*args, void *), 16);
            break;
        case '\0': return;  // a lone % at the end
        default: put_char(o, *format); break;
        }
    }
}

size_t qy_format(char *buf, size_t bytes, const char *format, ...) {
    if (!bytes) return 0;
    diag_out_t o = {buf, buf + bytes - 1};
    va_list args;
    va_start(args, format);
    put_format(&o, format, &args);
    va_end(args);
    *o.at = '\0';
    return (size_t)(o.at - buf);
}

// ---- messages -----------------------------------------------------------------------------------

// A line is cut rather than split; its end is a newline in any case.
typedef struct line {
    diag_out_t out;
    char text[LINE_BYTES];
} line_t;

static void line_begin(line_t *l, const char *prefix) {
    l->out = (diag_out_t){l->text, l->text + LINE_BYTES - 1};
    put_string(&l->out, prefix);
}

static void line_write(line_t *l) {
    *l->out.at++ = '\n';
    qy_os_write(STDERR, l->text, (size_t)(l->out.at - l->text));
}

static const char *const fault_words[] = {
    [QY_FAULT_DOUBLE_FREE] = "double free",
    [QY_FAULT_INVALID_FREE] = "invalid free",
    [QY_FAULT_INTERIOR_FREE] = "free of an interior pointer",
    [QY_FAULT_CORRUPT_LINK] = "corrupted free block",
    [QY_FAULT_CORRUPT_META] = "corrupted metadata",
    [QY_FAULT_WRONG_HEAP] = "block of another heap",
    [QY_FAULT_CALL_WITHIN] = "call within a call",
    [QY_FAULT_WRONG_SIZE] = "wrong size",
    [QY_FAULT_WRONG_ALIGN] = "wrong alignment",
    [QY_FAULT_DEAD_POOL] = "use of a destroyed pool",
    [QY_FAULT_POOL_IN_USE] = "destroyed pool is a parent",
    [QY_FAULT_NO_MEMORY] = "out of memory",
    [QY_FAULT_DAMAGED_POOL] = "damaged pool",
    [QY_FAULT_CANARY] = "overwritten canary",
    [QY_FAULT_QUARANTINE] = "write after free",
    [QY_FAULT_UNBALANCED] = "unbalanced frames",
    [QY_FAULT_NO_FRAME] = "no open frame",
    [QY_FAULT_SEALED_FRAME] = "sealed frame",
    [QY_FAULT_WRONG_FRAME] = "block of another frame",
    [QY_FAULT_DOUBLE_RELEASE] = "double release",
    [QY_FAULT_STALE_FRAME] = "stale frame",
    [QY_FAULT_WRONG_POOL] = "block of another pool",
    [QY_FAULT_WRONG_THREAD] = "wrong thread",
};

static _Atomic(qy_fatal_watch_t *) fatal_watch;
void qy_fatal_watch(qy_fatal_watch_t *watch) { atomic_store_explicit(&fatal_watch, watch, memory_order_release); }

// No handler runs from here on: one that calls malloc could be found at fault as well.
void qy_fatal(qy_fault_t fault, const void *ptr, const char *detail, ...) {
    line_t l;
    qy_os_signals_keep_out();
    line_begin(&l, "quarry: ");
    put_string(&l.out, fault_words[fault]);
    put_string(&l.out, ": 0x");
    put_number(&l.out, (uintptr_t)ptr, 16);
    char *more = l.out.at;
    if (detail) {
        put_string(&l.out, ", ");
        va_list args;
        va_start(args, detail);
        put_format(&l.out, detail, &args);
        va_end(args);
    }
    *l.out.at = 0;  // the line's end comes here
    qy_fatal_watch_t *watch = atomic_exchange_explicit(&fatal_watch, NULL, memory_order_acquire);
    if (watch) watch(fault, ptr, *more ? more + 2 : NULL);
    line_write(&l);
    qy_os_abort();
}

// Warnings quote the environment, so nothing in them may move a terminal's cursor.
void qy_warn(const char *format, ...) {
    line_t l;
    line_begin(&l, "quarry: warning: ");
    va_list args;
    va_start(args, format);
    put_format(&l.out, format, &args);
    va_end(args);
    for (char *c = l.text; c < l.out.at; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f) *c = '?';
    }
    line_write(&l);
}

void qy_assert_failed(const char *expr, const char *file, int line) {
    line_t l;
    line_begin(&l, "quarry: assertion failed: ");
    put_string(&l.out, expr);
    put_string(&l.out, ", ");
    put_string(&l.out, file);
    put_char(&l.out, ':');
    put_number(&l.out, (unsigned)line, 10);
    line_write(&l);
    qy_os_abort();
}

// ---- checks of whole structures ------------------------------------------------------------------

bool qy_sound_is_due(void) {
    static _Atomic unsigned calls;
    return atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) % QY_SOUND_EACH == 0;
}

void qy_sound_must_be(const char *wrong, const char *file, int line) {
    if (wrong) qy_assert_failed(wrong, file, line);
}
