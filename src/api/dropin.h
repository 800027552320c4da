// SPDX-License-Identifier: MIT
// dropin.h: what the libraries that are malloc have in common: names, and functions that say nothing of the allocator. It defines
// exported functions, so one file of each library includes it.
#ifndef QY_API_DROPIN_H
#define QY_API_DROPIN_H

#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

// Names of C23, of old and of glibc that the headers may not declare.
void free_sized(void *p, size_t n);
void free_aligned_sized(void *p, size_t align, size_t n);
void cfree(void *p);
void *pvalloc(size_t n);
int mallopt(int param, int value);
int malloc_trim(size_t keep);
void malloc_stats(void);

// What musl does not have, and glibc before 2.33.
#ifdef __GLIBC__
#define HAVE_MALLINFO2 __GLIBC_PREREQ(2, 33)
#else
#define HAVE_MALLINFO2 0
struct mallinfo {
    int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
struct mallinfo mallinfo(void);
#endif
#if !HAVE_MALLINFO2
struct mallinfo2 {
    size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
struct mallinfo2 mallinfo2(void);
#endif

// Callers that reach for glibc's internal names must not get the other allocator. musl has some of them too, for itself: what it keeps
// while it holds its locks comes from its own allocator always, so that a malloc may call back into it.
#ifndef __GLIBC__
#define DROPIN_ALIASES _Static_assert(1, "")
#else
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
#endif

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
