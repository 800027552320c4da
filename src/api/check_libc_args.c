// SPDX-License-Identifier: MIT
// check_libc_args.c: see check_libc_args.h.
#include "api/check_libc_args.h"

#include <limits.h>
#include <string.h>
#include <wchar.h>

#include "api/check_libc.h"

typedef struct args_walk {
    const void *format;
    bool is_wide;
    size_t at;  // the next character of the format
    va_list ap;
    const char *function;
} args_walk_t;

typedef struct args_spec {
    size_t most;  // a precision (printf) or a width (scanf); SIZE_MAX: none
    int length;   // one of "hHlqjztL" (H: hh, q: ll), 0: none
    bool is_suppressed, is_allocated;
    int conversion;
} args_spec_t;

static int args_char(const args_walk_t *w) {
    return w->is_wide ? (int)((const wchar_t *)w->format)[w->at] : ((const unsigned char *)w->format)[w->at];
}

QY_INLINE bool args_is(const args_walk_t *w, const char *set) {
    int c = args_char(w);
    for (; *set; set++)
        if (c == *set) return true;
    return false;
}

QY_INLINE bool args_is_digit(const args_walk_t *w) { return (unsigned)args_char(w) - '0' < 10; }

// *ret is left alone where no number is.
static void args_number(args_walk_t *w, size_t *ret) {
    if (!args_is_digit(w)) return;
    for (*ret = 0; args_is_digit(w); w->at++)
        if (*ret < INT_MAX) *ret = *ret * 10 + (size_t)(args_char(w) - '0');
}

static int args_length(args_walk_t *w) {
    int c = 0;
    while (args_is(w, "hlqjztLZ")) {
        int next = args_char(w);
        c = next == 'h' && c == 'h' ? 'H' : next == 'l' && c == 'l' ? 'q'
                                        : next == 'Z'               ? 'z'
                                                                    : next;
        w->at++;
    }
    return c;
}

// The next conversion's '%' has been passed. False: the format ends.
static bool args_find(args_walk_t *w) {
    for (; args_char(w); w->at++) {
        if (args_char(w) != '%') continue;
        w->at++;
        return true;
    }
    return false;
}

static void args_out(const args_walk_t *w, const void *p, size_t n) { qy_libc_out(p, n, w->function); }

// The bytes of an integer of this length.
static size_t args_bytes(int length) {
    switch (length) {
    case 'H': return 1;
    case 'h': return sizeof(short);
    case 'l':
    case 'z':
    case 't': return sizeof(long);
    case 'q':
    case 'L':
    case 'j': return sizeof(long long);
    default: return sizeof(int);
    }
}

// ---- printf -----------------------------------------------------------------------------------------------------

// A number that is '*' in the format is an argument.
static void printf_number(args_walk_t *w, size_t *ret) {
    if (!args_is(w, "*")) {
        args_number(w, ret);
        return;
    }
    w->at++;
    int n = va_arg(w->ap, int);
    *ret = n < 0 ? SIZE_MAX : (size_t)n;
}

static void printf_string(args_walk_t *w, const args_spec_t *s, const void *p) {
    if (!p || !qy_check_may_be_heap(p)) return;
    bool is_wide = s->length == 'l' || s->conversion == 'S';
    if (!is_wide && s->most == SIZE_MAX) {
        (void)qy_libc_length(p, w->function);
    } else if (!is_wide) {
        (void)qy_libc_length_max(p, s->most, w->function);
    } else if (s->most == SIZE_MAX) {
        qy_libc_string(p, (WIDE_LENGTH(p) + 1) * sizeof(wchar_t), w->function);
    }
}

// Take the conversion's argument. False: it is none that is known.
static bool printf_argument(args_walk_t *w, const args_spec_t *s) {
    switch (s->conversion) {
    case '%':
    case 'm': return true;
    case 'c': (void)va_arg(w->ap, int); return true;
    case 'C': (void)va_arg(w->ap, wint_t); return true;
    case 's':
    case 'S': printf_string(w, s, va_arg(w->ap, const void *)); return true;
    case 'p': (void)va_arg(w->ap, void *); return true;
    case 'n': args_out(w, va_arg(w->ap, void *), args_bytes(s->length)); return true;
    default: break;
    }
    if (strchr("diouxXbB", s->conversion)) {
        if (args_bytes(s->length) > sizeof(int))
            (void)va_arg(w->ap, long long);
        else
            (void)va_arg(w->ap, int);
        return true;
    }
    if (!strchr("eEfFgGaA", s->conversion)) return false;
    if (s->length == 'L' || s->length == 'q')
        (void)va_arg(w->ap, long double);
    else
        (void)va_arg(w->ap, double);
    return true;
}

static bool printf_next(args_walk_t *w) {
    args_spec_t s = {.most = SIZE_MAX};
    size_t width = 0;
    if (!args_find(w)) return false;
    while (args_is(w, "-+ #0'I")) w->at++;
    printf_number(w, &width);
    if (args_is(w, "$")) return false;
    if (args_is(w, ".")) {
        w->at++;
        s.most = 0;
        printf_number(w, &s.most);
    }
    s.length = args_length(w);
    s.conversion = args_char(w);
    if (s.conversion <= 0 || s.conversion > 127) return false;
    w->at++;
    return printf_argument(w, &s);
}

// The format itself, which both are given.
static void args_format(const void *format, bool is_wide, const char *function) {
    if (!qy_check_may_be_heap(format)) return;
    if (is_wide)
        qy_libc_string(format, (WIDE_LENGTH(format) + 1) * sizeof(wchar_t), function);
    else
        (void)qy_libc_length(format, function);
}

void qy_libc_printf_args(const void *format, bool is_wide, va_list args, const char *function) {
    args_walk_t w = {.format = format, .is_wide = is_wide, .function = function};
    if (!format) return;
    args_format(format, is_wide, function);
    va_copy(w.ap, args);
    while (printf_next(&w)) {}
    va_end(w.ap);
}

// ---- scanf ------------------------------------------------------------------------------------------------------

// "[...]", of which the '[' is the conversion and has been passed.
static void scanf_pass_set(args_walk_t *w) {
    if (args_is(w, "^")) w->at++;
    if (args_is(w, "]")) w->at++;
    while (args_char(w) && !args_is(w, "]")) w->at++;
    if (args_char(w)) w->at++;
}

// What a conversion has written to p, in bytes; 0: not known.
static size_t scanf_written(const args_spec_t *s, const void *p) {
    bool is_wide = s->length == 'l' || s->conversion == 'C' || s->conversion == 'S';
    size_t size = is_wide ? sizeof(wchar_t) : 1;
    if (s->is_allocated) return sizeof(void *);
    switch (s->conversion) {
    case 'c':
    case 'C': return (s->most == SIZE_MAX ? 1 : s->most) * size;
    case 's':
    case 'S':
    case '[': return qy_check_may_be_heap(p) ? ((is_wide ? WIDE_LENGTH(p) : LENGTH(p)) + 1) * size : 0;
    case 'p': return sizeof(void *);
    default: break;
    }
    if (strchr("diouxXnb", s->conversion)) return args_bytes(s->length);
    if (!strchr("eEfFgGaA", s->conversion)) return 0;
    return s->length == 'L' || s->length == 'q' ? sizeof(long double) : s->length == 'l' ? sizeof(double)
                                                                                         : sizeof(float);
}

// *left: conversions that scanf has counted, and that were not met yet.
static bool scanf_next(args_walk_t *w, int *left) {
    args_spec_t s = {.most = SIZE_MAX};
    if (!args_find(w)) return false;
    while (args_is(w, "*'Im")) {
        s.is_suppressed |= args_is(w, "*");
        s.is_allocated |= args_is(w, "m");
        w->at++;
    }
    args_number(w, &s.most);
    if (args_is(w, "$")) return false;
    if (args_is(w, "m")) {
        s.is_allocated = true;
        w->at++;
    }
    s.length = args_length(w);
    s.conversion = args_char(w);
    if (s.conversion <= 0 || s.conversion > 127) return false;
    w->at++;
    if (s.conversion == '[') scanf_pass_set(w);
    if (s.conversion == '%' || s.is_suppressed) return true;
    if (s.conversion != 'n' && (*left)-- <= 0) return false;
    void *p = va_arg(w->ap, void *);
    args_out(w, p, scanf_written(&s, p));
    return true;
}

void qy_libc_scanf_args(const void *format, bool is_wide, va_list args, int done, const char *function) {
    args_walk_t w = {.format = format, .is_wide = is_wide, .function = function};
    if (!format) return;
    args_format(format, is_wide, function);
    if (done <= 0) return;
    va_copy(w.ap, args);
    while (scanf_next(&w, &done)) {}
    va_end(w.ap);
}
