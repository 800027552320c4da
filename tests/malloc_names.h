// SPDX-License-Identifier: MIT
// malloc_names.h: <malloc.h>, and what of glibc's a C library may lack: musl has neither mallinfo nor what tunes and
// trims. A program that is not linked with Quarry looks them up, as it is run with Quarry preloaded (TEST_PRELOADED, of
// qy_test).
#ifndef QUARRY_TESTS_MALLOC_NAMES_H
#define QUARRY_TESTS_MALLOC_NAMES_H

#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>

#ifdef TEST_PRELOADED
#define MALLOC_NAME(result, name, parameters, arguments)    \
    __attribute__((unused)) static result name parameters { \
        result(*function) parameters;                       \
        *(void **)&function = dlsym(RTLD_DEFAULT, #name);   \
        return function arguments;                          \
    }
#else
#define MALLOC_NAME(result, name, parameters, arguments) result name parameters
#endif

#ifdef __GLIBC__
#define MALLOC_NAMES_MALLINFO2 __GLIBC_PREREQ(2, 33)
#else
#define MALLOC_NAMES_MALLINFO2 0
#define M_MXFAST 1
#define M_TRIM_THRESHOLD (-1)
#define M_TOP_PAD (-2)
#define M_MMAP_THRESHOLD (-3)
#define M_MMAP_MAX (-4)
#define M_CHECK_ACTION (-5)
#define M_PERTURB (-6)
#define M_ARENA_TEST (-7)
#define M_ARENA_MAX (-8)
struct mallinfo {
    int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
MALLOC_NAME(struct mallinfo, mallinfo, (void), ());
MALLOC_NAME(void *, pvalloc, (size_t size), (size));
MALLOC_NAME(int, mallopt, (int param, int value), (param, value));
MALLOC_NAME(int, malloc_trim, (size_t keep), (keep));
MALLOC_NAME(int, malloc_info, (int options, FILE *out), (options, out));
MALLOC_NAME(void, malloc_stats, (void), ());
#endif
#if !MALLOC_NAMES_MALLINFO2
struct mallinfo2 {
    size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
MALLOC_NAME(struct mallinfo2, mallinfo2, (void), ());
#endif

#endif
