// SPDX-License-Identifier: MIT
// check_libc.h: what the interposed functions of the C library share; in libquarry-check only.
//
// A function is a line in one of the tables check_libc_*.def: its name and arguments, what it reads and writes, as its
// standard says it. check_libc_define.h makes of each line the function that the program calls. It looks at the memory,
// then calls the C library's function, and changes neither its arguments nor its result nor errno.
//
// What a function is known to touch is looked at before the call. What depends on its result (how much was read from a
// file, where a string ends) is looked at after. Only the heap's memory is looked at: other addresses cost a
// comparison. A function of the C library that calls another one does so inside the library, where no line sees it.
// This library's own calls go to the functions named __wrap_..., by the linker's option --wrap, and are not looked at.
#ifndef QY_API_CHECK_LIBC_H
#define QY_API_CHECK_LIBC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

#include "base/compiler.h"
#include "check/check.h"
#include "guard/guard.h"

// ---- the C library's functions ------------------------------------------------------------------------------

// One name of a table, and where the pointer to the C library's function is kept.
typedef struct qy_libc_name {
    const char *name;
    uintptr_t *real;
} qy_libc_name_t;

// A function that is called before the constructor has found all of them: one of check_libc_plain.c, else the C
// library's.
uintptr_t qy_libc_early(const char *name);
// One of ours that does the same in a plain loop; 0: none.
uintptr_t qy_libc_plain(const char *name);
// Each table's names; called by the constructor.
void qy_libc_find(const qy_libc_name_t *names, size_t n);

// The C library's own, for what is written here and in the tables: a name that is defined in the same file is that one.
QY_HIDDEN size_t __wrap_strlen(const char *s);
QY_HIDDEN size_t __wrap_strnlen(const char *s, size_t n);
QY_HIDDEN void *__wrap_memchr(const void *s, int c, size_t n);
QY_HIDDEN size_t __wrap_wcslen(const wchar_t *s);
QY_HIDDEN size_t __wrap_wcsnlen(const wchar_t *s, size_t n);
#define LENGTH(s) __wrap_strlen(s)
#define LENGTH_MAX(s, n) __wrap_strnlen(s, n)
#define WIDE_LENGTH(s) __wrap_wcslen(s)
#define WIDE_LENGTH_MAX(s, n) __wrap_wcsnlen(s, n)

// ---- looking at memory --------------------------------------------------------------------------------------

// A string that was read from p on: `bytes` with its end.
void qy_libc_string_cold(const void *p, size_t bytes, const char *function);
void qy_libc_overlap(const void *to, size_t bytes, const char *function);
void qy_libc_negative(const void *p, size_t n, const char *function);

QY_INLINE void qy_libc_in(const void *p, size_t n, const char *function) { qy_check_read(p, n, function); }
QY_INLINE void qy_libc_out(const void *p, size_t n, const char *function) { qy_check_write(p, n, function); }

// A negative number, taken for a size. True: said, and there is nothing else to look at.
QY_INLINE bool qy_libc_is_negative(const void *p, size_t n, const char *function) {
    if (QY_LIKELY(n <= PTRDIFF_MAX)) return false;
    qy_libc_negative(p, n, function);
    return true;
}

// Do the two overlap? The very same place is no overlap: there nothing is lost, and compilers make such calls.
QY_INLINE void qy_libc_apart(const void *to, size_t to_bytes, const void *from, size_t from_bytes, const char *fn) {
    uintptr_t t = (uintptr_t)to, f = (uintptr_t)from;
    if (QY_LIKELY(t - f >= from_bytes && f - t >= to_bytes)) return;
    if (t != f && to_bytes && from_bytes) qy_libc_overlap(to, to_bytes, fn);
}

QY_INLINE void qy_libc_string(const void *p, size_t bytes, const char *function) {
    if (qy_check_may_be_heap(p) && QY_UNLIKELY(!qy_check_is_live(p, bytes))) qy_libc_string_cold(p, bytes, function);
}

// In guarded memory a string is measured as far as its block goes, so that this library meets no closed page. What is
// wrong is told by the function's name, and the pages are open then, so that the function goes on.
size_t qy_libc_length_guarded(const char *s, const char *function);
size_t qy_libc_length_max_guarded(const char *s, size_t max, const char *function);
// Bytes from p on that may be read: 0 if its block is freed, or p is beside it; SIZE_MAX: it is in no guarded block.
size_t qy_libc_room_guarded(const void *p);
QY_INLINE size_t qy_libc_room(const void *p) {
    return QY_UNLIKELY(qy_guard_is_near(p)) ? qy_libc_room_guarded(p) : SIZE_MAX;
}
// Open what is closed from p on, and behind its block.
void qy_libc_open(const void *p);
// The kernel stops at a page that is closed: a call fails, though a connection or a message is gone by it, or seems to
// end early. So where it may write n bytes to p, the block's pages that are closed and the one behind it are opened
// first. What it has written is looked at afterwards.
void qy_libc_make_room_guarded(const void *p, size_t n);
QY_INLINE void qy_libc_make_room(const void *p, size_t n) {
    if (QY_UNLIKELY(qy_guard_is_near(p))) qy_libc_make_room_guarded(p, n);
}

// The string at s, and its length; n: characters at most.
QY_INLINE size_t qy_libc_length(const char *s, const char *function) {
    if (QY_UNLIKELY(qy_guard_is_near(s))) return qy_libc_length_guarded(s, function);
    size_t n = LENGTH(s);
    qy_libc_string(s, n + 1, function);
    return n;
}
QY_INLINE size_t qy_libc_length_max(const char *s, size_t max, const char *function) {
    if (QY_UNLIKELY(qy_guard_is_near(s))) return qy_libc_length_max_guarded(s, max, function);
    size_t n = LENGTH_MAX(s, max);
    qy_libc_in(s, n < max ? n + 1 : n, function);
    return n;
}

// How many bytes of each are read to compare them: up to a difference or the end, and n at most. alike: in all cases.
size_t qy_libc_same(const char *a, const char *b, size_t n);
size_t qy_libc_alike(const char *a, const char *b, size_t n);

#endif
