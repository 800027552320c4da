// SPDX-License-Identifier: MIT
// check_libc_wide.c: see check_libc.h. Wide characters.
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <wchar.h>
#include <wctype.h>

#include "api/check_libc.h"
#include "base/num.h"

QY_HIDDEN size_t __wrap_wcrtomb(char *d, wchar_t c, mbstate_t *state);

// As qy_libc_length_guarded and qy_libc_length_max_guarded.
QY_COLD static size_t wide_length_guarded(const wchar_t *s, const char *function) {
    size_t room = qy_libc_room_guarded(s), most = room / sizeof *s, n = WIDE_LENGTH_MAX(s, most);
    if (n < most) return n;
    qy_libc_string_cold(s, room + 1, function);
    return WIDE_LENGTH(s);
}
QY_COLD static size_t wide_length_max_guarded(const wchar_t *s, size_t max, const char *function) {
    size_t room = qy_libc_room_guarded(s), most = room / sizeof *s, n = WIDE_LENGTH_MAX(s, qy_min(most, max));
    if (n < most || max <= most) return n;
    qy_check_read(s, room + 1, function);
    qy_libc_open(s);
    return WIDE_LENGTH_MAX(s, max);
}

static size_t wide_length(const wchar_t *s, const char *function) {
    if (QY_UNLIKELY(qy_guard_is_near(s))) return wide_length_guarded(s, function);
    size_t n = WIDE_LENGTH(s);
    qy_libc_string(s, (n + 1) * sizeof *s, function);
    return n;
}

static size_t wide_length_max(const wchar_t *s, size_t max, const char *function) {
    if (QY_UNLIKELY(qy_guard_is_near(s))) return wide_length_max_guarded(s, max, function);
    size_t n = WIDE_LENGTH_MAX(s, max);
    qy_libc_in(s, (n < max ? n + 1 : n) * sizeof *s, function);
    return n;
}

// As qy_libc_same and qy_libc_alike, in characters.
static size_t wide_same(const wchar_t *a, const wchar_t *b, size_t n) {
    size_t room = qy_min(qy_libc_room(a), qy_libc_room(b)) / sizeof *a;
    for (size_t i = 0; i < n; i++)
        if (i == room || a[i] != b[i] || !a[i]) return i + 1;
    return n;
}

static size_t wide_alike(const wchar_t *a, const wchar_t *b, size_t n) {
    size_t room = qy_min(qy_libc_room(a), qy_libc_room(b)) / sizeof *a;
    for (size_t i = 0; i < n; i++)
        if (i == room || towlower((wint_t)a[i]) != towlower((wint_t)b[i]) || !a[i]) return i + 1;
    return n;
}

// How many characters at s can be converted to bytes; errno is kept.
static size_t wide_valid(const wchar_t *s) {
    int e = errno;
    size_t n = 0;
    for (; s[n]; n++) {
        char bytes[MB_LEN_MAX];
        mbstate_t state = {0};
        if (__wrap_wcrtomb(bytes, s[n], &state) == SIZE_MAX) break;
    }
    errno = e;
    return n;
}

#define TABLE "api/check_libc_wide.def"
#define TABLE_FIND qy_libc_find_wide
#include "api/check_libc_define.h"
