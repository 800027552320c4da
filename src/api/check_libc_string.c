// SPDX-License-Identifier: MIT
// check_libc_string.c: see check_libc.h. Memory and strings of bytes.
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TABLE "api/check_libc_string.def"
#define TABLE_FIND qy_libc_find_string
#define UP_TO_BYTE(s, c, n) string_up_to(s, c, n)

#include "api/check_libc.h"

QY_HIDDEN void *__wrap_memmem(const void *s, size_t n, const void *t, size_t m);

// How many of n bytes are copied if those up to the first c are.
static size_t string_up_to(const void *s, int c, size_t n) {
    const char *found = __wrap_memchr(s, c, n);
    return found ? (size_t)(found - (const char *)s) + 1 : n;
}

// Of a guarded block: is there no such text?
static bool string_lacks(const char *s, const char *text) {
    size_t room = qy_libc_room(s);
    return room != SIZE_MAX && !__wrap_memmem(s, room, text, LENGTH(text));
}

#include "api/check_libc_define.h"
