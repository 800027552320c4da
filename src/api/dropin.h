// SPDX-License-Identifier: MIT
// dropin.h: what the libraries that are malloc have in common: names, and functions that say nothing of the allocator. It defines
// exported functions, so one file of each library includes it.
#ifndef QY_API_DROPIN_H
#define QY_API_DROPIN_H

#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

// Names of C23 and of old that the headers may not declare.
void free_sized(void *p, size_t n);
void free_aligned_sized(void *p, size_t align, size_t n);
void cfree(void *p);

// Callers that reach for glibc's internal names must not get the other allocator.
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmissing-attributes"
#endif
#define ALIAS(name, target) extern __typeof__(target) name __attribute__((alias(#target), visibility("default")))
#define DROPIN_ALIASES                \
    ALIAS(__libc_malloc, malloc);     \
    ALIAS(__libc_free, free);         \
    ALIAS(__libc_cfree, free);        \
    ALIAS(__libc_calloc, calloc);     \
    ALIAS(__libc_realloc, realloc);   \
    ALIAS(__libc_memalign, memalign); \
    ALIAS(__libc_valloc, valloc);     \
    ALIAS(__libc_pvalloc, pvalloc);   \
    ALIAS(__posix_memalign, posix_memalign)

// glibc's tuning knobs describe glibc's heap; none applies to another. 0 says "not set".
EXPORT int mallopt(int param, int value) {
    (void)param, (void)value;
    return 0;
}

// The old form has int fields: what does not fit is the largest int, not a wrapped number.
static int dropin_clamp(size_t n) { return n > INT32_MAX ? INT32_MAX : (int)n; }

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
EXPORT struct mallinfo mallinfo(void) {
    struct mallinfo2 m = mallinfo2();
    struct mallinfo old = {0};
    old.arena = dropin_clamp(m.arena);
    old.ordblks = dropin_clamp(m.ordblks);
    old.hblks = dropin_clamp(m.hblks);
    old.hblkhd = dropin_clamp(m.hblkhd);
    old.uordblks = dropin_clamp(m.uordblks);
    old.fordblks = dropin_clamp(m.fordblks);
    old.keepcost = dropin_clamp(m.keepcost);
    return old;
}
#pragma GCC diagnostic pop

#endif
