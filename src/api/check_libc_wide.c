// SPDX-License-Identifier: MIT
// check_libc_wide.c: see check_libc.h. Wide characters.
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <wchar.h>
#include <wctype.h>

#include "api/check_libc.h"

QY_HIDDEN size_t __wrap_wcrtomb(char *d, wchar_t c, mbstate_t *state);

static size_t wide_length(const wchar_t *s, const char *function) {
    size_t n = WIDE_LENGTH(s);
    qy_libc_string(s, (n + 1) * sizeof *s, function);
    return n;
}

static size_t wide_length_max(const wchar_t *s, size_t max, const char *function) {
    size_t n = WIDE_LENGTH_MAX(s, max);
    qy_libc_in(s, (n < max ? n + 1 : n) * sizeof *s, function);
    return n;
}

// As qy_libc_same and qy_libc_alike, in characters.
static size_t wide_same(const wchar_t *a, const wchar_t *b, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (a[i] != b[i] || !a[i]) return i + 1;
    return n;
}

static size_t wide_alike(const wchar_t *a, const wchar_t *b, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (towlower((wint_t)a[i]) != towlower((wint_t)b[i]) || !a[i]) return i + 1;
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
