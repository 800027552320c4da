// SPDX-License-Identifier: MIT
// dropin.h: what the libraries that are malloc have in common: names, and functions that say nothing of the allocator.
// It defines exported functions, so one file of each library includes it.
#ifndef QY_API_DROPIN_H
#define QY_API_DROPIN_H

#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "os/os.h"
#include "rt/diag.h"
#include "rt/opts.h"

#define EXPORT __attribute__((visibility("default")))

// Names of C23, of old and of glibc that the headers may not declare.
void free_sized(void *p, size_t n);
void free_aligned_sized(void *p, size_t align, size_t n);
void cfree(void *p);
void *pvalloc(size_t n);            // NOLINT(readability-redundant-declaration): musl has none
int mallopt(int param, int value);  // NOLINT(readability-redundant-declaration): musl has none
int malloc_trim(size_t keep);       // NOLINT(readability-redundant-declaration): musl has none
void malloc_stats(void);            // NOLINT(readability-redundant-declaration): musl has none

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

#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmissing-attributes"  // an alias need not repeat what a header says of its function
#endif

// Callers that reach for glibc's internal names must not get the other allocator. musl has some of them too, for
// itself: what it keeps while it holds its locks comes from its own allocator always, so that a malloc may call back
// into it.
#ifndef __GLIBC__
#define DROPIN_ALIASES _Static_assert(1, "")
#else
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

// glibc's knobs are those of its own heap. Programs look whether they could be set, so they can, as far as glibc takes
// the value. One of them has a meaning for any heap: a program that must not wait for page faults, or that has
// registered its memory with a device, says M_TRIM_THRESHOLD -1, so that what it freed is not given back. That is
// option purge:off; other values are as if nothing was said.
static void dropin_give_back(bool wanted) {
    static bool stopped;  // by the program, not by QUARRY_CONF
    if (wanted ? stopped : __atomic_load_n(&qy_opts.purge, __ATOMIC_RELAXED)) {
        __atomic_store_n(&qy_opts.purge, wanted, __ATOMIC_RELAXED);
        __atomic_store_n(&stopped, !wanted, __ATOMIC_RELAXED);
    }
}

// Numbers of glibc's that not every C library's header has.
#ifndef M_TRIM_THRESHOLD
#define M_MXFAST 1
#define M_TRIM_THRESHOLD (-1)
#define M_MMAP_THRESHOLD (-3)
#endif
#define GLIBC_MXFAST_MAX (80 * sizeof(size_t) / 4)
#define GLIBC_MMAP_THRESHOLD_MAX (4 * 1024 * 1024 * sizeof(long))
EXPORT int mallopt(int param, int value) {
    switch (param) {
    case M_MXFAST: return value >= 0 && (size_t)value <= GLIBC_MXFAST_MAX;
    case M_MMAP_THRESHOLD: return value >= 0 && (size_t)value <= GLIBC_MMAP_THRESHOLD_MAX;
    case M_TRIM_THRESHOLD: dropin_give_back(value >= 0); return 1;
    default: return 1;
    }
}

// What the library knows.
QY_HIDDEN struct mallinfo2 qy_dropin_mallinfo(void);
EXPORT struct mallinfo2 mallinfo2(void) { return qy_dropin_mallinfo(); }

// The old form has int fields: what does not fit is the largest int, not a wrapped number.
static int dropin_clamp(size_t n) { return n > INT32_MAX ? INT32_MAX : (int)n; }

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
EXPORT struct mallinfo mallinfo(void) {
    struct mallinfo2 m = qy_dropin_mallinfo();
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

// What tools look for in the output of glibc's malloc_stats.
static void dropin_stats_as_glibc(int fd) {
    char text[256];
    struct mallinfo2 m = qy_dropin_mallinfo();
    size_t n = qy_format(text, sizeof text,
        "Total (incl. mmap):\nsystem bytes     = %z\nin use bytes     = %z\nmax mmap regions = %z\nmax mmap bytes   = "
        "%z\n",
        m.arena + m.hblkhd, m.uordblks + m.hblkhd, m.hblks, m.hblkhd);
    qy_os_write(fd, text, n);
}

// And in that of malloc_info; free memory is not in bins here.
static int dropin_info_as_glibc(FILE *out, size_t free_blocks, size_t live_blocks) {
    static const char format[] =
        "<malloc version=\"1\">\n<heap nr=\"0\">\n<sizes>\n</sizes>\n"
        "<total type=\"fast\" count=\"0\" size=\"0\"/>\n<total type=\"rest\" count=\"%zu\" size=\"%zu\"/>\n"
        "<system type=\"current\" size=\"%zu\"/>\n<system type=\"max\" size=\"%zu\"/>\n"
        "<aspace type=\"total\" size=\"%zu\"/>\n<aspace type=\"mprotect\" size=\"%zu\"/>\n</heap>\n"
        "<total type=\"fast\" count=\"0\" size=\"0\"/>\n<total type=\"rest\" count=\"%zu\" size=\"%zu\"/>\n"
        "<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>\n<total type=\"live\" count=\"%zu\" size=\"%zu\"/>\n"
        "<system type=\"current\" size=\"%zu\"/>\n<system type=\"max\" size=\"%zu\"/>\n"
        "<aspace type=\"total\" size=\"%zu\"/>\n<aspace type=\"mprotect\" size=\"%zu\"/>\n</malloc>\n";
    struct mallinfo2 m = qy_dropin_mallinfo();
    int n = fprintf(out, format, free_blocks, m.fordblks, m.arena, m.arena, m.arena, m.arena, free_blocks, m.fordblks,
        m.hblks, m.hblkhd, live_blocks, m.uordblks, m.arena, m.arena, m.arena, m.arena);
    return n < 0 ? -1 : 0;
}

#endif
