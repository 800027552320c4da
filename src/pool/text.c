// SPDX-License-Identifier: MIT
// text.c: printf into a pool.
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "pool/pool.h"

// Most texts fit the first try; for those that do not its result says the size.
#define FIRST_TRY 512

char *quarry_pool_vprintf(quarry_pool_t *pool, const char *format, va_list args) {
    char small[FIRST_TRY];
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(small, sizeof small, format, args);
    char *text = n < 0 ? NULL : quarry_pool_alloc(pool, (size_t)n + 1, 1, 0);
    if (text && (size_t)n < sizeof small) memcpy(text, small, (size_t)n + 1);
    else if (text) vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    return text;
}

char *quarry_pool_printf(quarry_pool_t *pool, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = quarry_pool_vprintf(pool, format, args);
    va_end(args);
    return text;
}
