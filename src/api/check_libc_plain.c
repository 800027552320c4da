// SPDX-License-Identifier: MIT
// check_libc_plain.c: the functions that are called before this library is relocated, in plain loops.
//
// The resolver of an ifunc, of the program or of a library, runs while things are relocated. Then dlsym cannot be
// called, and no pointer that the linker leaves to the loader can be read: so there is no table here. This file is
// compiled so that no loop in it becomes a call to the very function that it stands for.
#include <string.h>
#include <wchar.h>

#include "api/check_libc.h"

static void *plain_memcpy(void *d, const void *s, size_t n) {
    for (size_t i = 0; i < n; i++) ((char *)d)[i] = ((const char *)s)[i];
    return d;
}

static void *plain_memmove(void *d, const void *s, size_t n) {
    if ((uintptr_t)d - (uintptr_t)s >= n) return plain_memcpy(d, s, n);
    while (n--) ((char *)d)[n] = ((const char *)s)[n];
    return d;
}

static void *plain_mempcpy(void *d, const void *s, size_t n) { return (char *)plain_memcpy(d, s, n) + n; }

static void *plain_memset(void *d, int c, size_t n) {
    for (size_t i = 0; i < n; i++) ((char *)d)[i] = (char)c;
    return d;
}

static int plain_memcmp(const void *a, const void *b, size_t n) {
    const unsigned char *x = a, *y = b;
    for (size_t i = 0; i < n; i++)
        if (x[i] != y[i]) return x[i] - y[i];
    return 0;
}

static void *plain_memchr(const void *s, int c, size_t n) {
    for (const unsigned char *p = s; n--; p++)
        if (*p == (unsigned char)c) return (void *)p;
    return NULL;
}

static size_t plain_strnlen(const char *s, size_t n) {
    size_t i = 0;
    while (i < n && s[i]) i++;
    return i;
}

static size_t plain_strlen(const char *s) { return plain_strnlen(s, SIZE_MAX); }

static int plain_strncmp(const char *a, const char *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (a[i] != b[i]) return (unsigned char)a[i] - (unsigned char)b[i];
        if (!a[i]) break;
    }
    return 0;
}

static int plain_strcmp(const char *a, const char *b) { return plain_strncmp(a, b, SIZE_MAX); }

static char *plain_strchr(const char *s, int c) {
    for (;; s++) {
        if (*s == (char)c) return (char *)s;
        if (!*s) return NULL;
    }
}

static char *plain_strrchr(const char *s, int c) {
    const char *found = NULL;
    do
        if (*s == (char)c) found = s;
    while (*s++);
    return (char *)found;
}

static char *plain_strcpy(char *d, const char *s) { return plain_memcpy(d, s, plain_strlen(s) + 1); }

uintptr_t qy_libc_plain(const char *name) {
#define PLAIN(function) \
    if (plain_strcmp(name, #function) == 0) return (uintptr_t)plain_##function
    PLAIN(memcpy);
    PLAIN(memmove);
    PLAIN(mempcpy);
    PLAIN(memset);
    PLAIN(memcmp);
    PLAIN(memchr);
    PLAIN(strlen);
    PLAIN(strnlen);
    PLAIN(strcmp);
    PLAIN(strncmp);
    PLAIN(strchr);
    PLAIN(strrchr);
    PLAIN(strcpy);
#undef PLAIN
    return 0;
}
