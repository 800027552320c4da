// SPDX-License-Identifier: MIT
// dropin_text.c: functions of strings for short and rare ones, in libquarry-malloc only, shared, for glibc.
//
// The loader looks for each name that a library refers to in each process that starts, and libc then chooses one of
// several functions for the processor. What the heap has is names, lines of /proc and options, so plain loops will do.
// memset and memmove are libc's: they see blocks. Compiled so that no loop becomes a call of the function that it is.
#include <stddef.h>
#include <string.h>

#include "base/compiler.h"

#ifdef __GLIBC__

QY_HIDDEN size_t strlen(const char *s) {
    size_t n = 0;
    while (s[n]) n++;
    return n;
}

QY_HIDDEN int strcmp(const char *a, const char *b) {
    while (*a && *a == *b) a++, b++;
    return (unsigned char)*a - (unsigned char)*b;
}

QY_HIDDEN char *strrchr(const char *s, int c) {
    const char *found = NULL;
    do {
        if (*s == (char)c) found = s;
    } while (*s++);
    return (char *)found;
}

QY_HIDDEN void *memchr(const void *p, int c, size_t n) {
    const unsigned char *s = p;
    for (; n; n--, s++)
        if (*s == (unsigned char)c) return (void *)s;
    return NULL;
}

QY_HIDDEN int memcmp(const void *a, const void *b, size_t n) {
    const unsigned char *x = a, *y = b;
    for (; n; n--, x++, y++)
        if (*x != *y) return *x - *y;
    return 0;
}

QY_HIDDEN void *memcpy(void *restrict to, const void *restrict from, size_t n) { return memmove(to, from, n); }

#else
typedef int qy_dropin_text_is_empty;
#endif
