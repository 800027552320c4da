// SPDX-License-Identifier: MIT
// family.h: the malloc family as a table `m`, so that one test source serves all builds:
//   FAMILY_QUARRY   the quarry_* names, linked
//   FAMILY_LINKED   the C library's names, linked with a drop-in library
//   neither         the C library's names in a program that knows of no Quarry: run under a preload
// The pointers are volatile: the compiler can assume nothing about what it calls, so that every call
// is made, no comparison of blocks is folded, and no strange size is warned about.
#ifndef QUARRY_TESTS_FAMILY_H
#define QUARRY_TESTS_FAMILY_H

#include <dlfcn.h>
#include <quarry/malloc.h>

#include "harness.h"
#include "malloc_names.h"

#ifndef FAMILY_QUARRY
#define FAMILY_QUARRY 0
#endif
#ifndef FAMILY_LINKED
#define FAMILY_LINKED 0
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FAMILY_SANITIZED 1
#ifdef __SANITIZE_THREAD__
#define FAMILY_TSAN 1
#endif
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FAMILY_TSAN 1
#endif
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FAMILY_SANITIZED 1
#endif
#endif
#ifndef FAMILY_TSAN
#define FAMILY_TSAN 0
#endif
#ifndef FAMILY_SANITIZED
#define FAMILY_SANITIZED 0
#endif

typedef struct family {
    void *(*volatile malloc)(size_t size);
    void *(*volatile calloc)(size_t count, size_t size);
    void *(*volatile realloc)(void *p, size_t size);
    void *(*volatile reallocarray)(void *p, size_t count, size_t size);
    void (*volatile free)(void *p);
    void (*volatile free_sized)(void *p, size_t size);
    void (*volatile free_aligned_sized)(void *p, size_t align, size_t size);
    void *(*volatile aligned_alloc)(size_t align, size_t size);
    int (*volatile posix_memalign)(void **ret_ptr, size_t align, size_t size);
    void *(*volatile memalign)(size_t align, size_t size);
    void *(*volatile valloc)(size_t size);
    void *(*volatile pvalloc)(size_t size);
    size_t (*volatile usable_size)(void *p);
    int (*volatile trim)(size_t keep);
} family_t;

// Another malloc than Quarry is tried.
__attribute__((unused)) static int family_other;

#if FAMILY_QUARRY
static size_t family_usable_size(void *p) { return quarry_usable_size(p); }  // its parameter is const
static family_t m = {
    quarry_malloc,
    quarry_calloc,
    quarry_realloc,
    quarry_reallocarray,
    quarry_free,
    quarry_free_sized,
    quarry_free_aligned_sized,
    quarry_aligned_alloc,
    quarry_posix_memalign,
    quarry_memalign,
    quarry_valloc,
    quarry_pvalloc,
    family_usable_size,
    quarry_trim,
};
#else
#if FAMILY_LINKED
#ifdef __cplusplus
extern "C" {
#endif
void free_sized(void *p, size_t size);
void free_aligned_sized(void *p, size_t align, size_t size);
#ifdef __cplusplus
}
#endif
#define FAMILY_C23(name) name
#else
#define FAMILY_C23(name) NULL
#endif
static family_t m = {
    malloc,
    calloc,
    realloc,
    reallocarray,
    free,
    FAMILY_C23(free_sized),
    FAMILY_C23(free_aligned_sized),
    aligned_alloc,
    posix_memalign,
    memalign,
    valloc,
    pvalloc,
    malloc_usable_size,
    malloc_trim,
};
#if !FAMILY_LINKED
// What the system's C library may not have is looked up; that it is found says that Quarry is here. Under another
// malloc, which tests/fault/scenarios.py tries and names in QUARRY_TEST_OTHER_MALLOC, free does its work.
static void family_free_sized(void *p, size_t size) {
    (void)size;
    m.free(p);
}
static void family_free_aligned_sized(void *p, size_t align, size_t size) {
    (void)align, (void)size;
    m.free(p);
}
static int family_look_up(void) {
    int ours = dlsym(RTLD_DEFAULT, "quarry_version") != NULL;
    m.free_sized = (void (*)(void *, size_t))(uintptr_t)dlsym(RTLD_DEFAULT, "free_sized");
    m.free_aligned_sized = (void (*)(void *, size_t, size_t))(uintptr_t)dlsym(RTLD_DEFAULT, "free_aligned_sized");
    family_other = !ours && getenv("QUARRY_TEST_OTHER_MALLOC");
    if (!family_other) return ours && m.free_sized && m.free_aligned_sized;
    if (!m.free_sized) m.free_sized = family_free_sized;
    if (!m.free_aligned_sized) m.free_aligned_sized = family_free_aligned_sized;
    return 1;
}
__attribute__((constructor)) static void family_complete(void) {
    if (!family_look_up()) {
        static const char message[] = "FAILED: this test runs under libquarry-malloc.so only\n";
        if (write(2, message, sizeof message - 1) < 0) {}
        _exit(1);
    }
}
#endif
#endif

// Every way to get `size` bytes and nothing else.
__attribute__((unused)) static void *family_calloc_1n(size_t n) { return m.calloc(1, n); }
__attribute__((unused)) static void *family_calloc_n1(size_t n) { return m.calloc(n, 1); }
__attribute__((unused)) static void *family_realloc(size_t n) { return m.realloc(NULL, n); }
__attribute__((unused)) static void *family_reallocarray_1n(size_t n) { return m.reallocarray(NULL, 1, n); }
__attribute__((unused)) static void *family_reallocarray_n1(size_t n) { return m.reallocarray(NULL, n, 1); }
__attribute__((unused)) static void *family_aligned_1(size_t n) { return m.aligned_alloc(1, n); }
__attribute__((unused)) static void *family_aligned_64(size_t n) { return m.aligned_alloc(64, n); }
__attribute__((unused)) static void *family_memalign(size_t n) { return m.memalign(256, n); }
__attribute__((unused)) static void *family_valloc(size_t n) { return m.valloc(n); }
__attribute__((unused)) static void *family_pvalloc(size_t n) { return m.pvalloc(n); }
__attribute__((unused)) static void *family_malloc(size_t n) { return m.malloc(n); }
// Says what it failed with as the others do, and checks that it left alone what it must.
__attribute__((unused)) static void *family_posix(size_t n) {
    void *p = &m;
    int saved = errno, error = m.posix_memalign(&p, 8, n);
    CHECK_EQ(errno, error == ENOMEM ? ENOMEM : saved);  // as glibc leaves it
    if (!error) return p;
    CHECK_PTR_EQ(p, &m);
    errno = error;
    return NULL;
}

typedef struct maker {
    const char *name;
    void *(*make)(size_t size);
    size_t align;  // what it must give at least
} maker_t;
static const maker_t makers[] = {
    {"malloc(n)", family_malloc, 16},
    {"calloc(1, n)", family_calloc_1n, 16},
    {"calloc(n, 1)", family_calloc_n1, 16},
    {"realloc(NULL, n)", family_realloc, 16},
    {"reallocarray(NULL, 1, n)", family_reallocarray_1n, 16},
    {"reallocarray(NULL, n, 1)", family_reallocarray_n1, 16},
    {"aligned_alloc(1, n)", family_aligned_1, 16},
    {"aligned_alloc(64, n)", family_aligned_64, 64},
    {"posix_memalign(8, n)", family_posix, 16},
    {"memalign(256, n)", family_memalign, 256},
    {"valloc(n)", family_valloc, 4096},
    {"pvalloc(n)", family_pvalloc, 4096},
};
enum { MAKERS = sizeof makers / sizeof *makers };

// Bytes that follow from a number, so that a block can be checked without a copy of it.
__attribute__((unused)) static inline unsigned char pattern_at(uint64_t key, size_t i) {
    return (unsigned char)((key * 0x9E3779B97F4A7C15u + i * 0xD6E8FEB86659FD93u) >> 56);
}
// The bytes of a block of n that are looked at: all of a small one; of others the ends and the
// neighbourhood of page boundaries, of large ones that of every sixteenth.
__attribute__((unused)) static inline size_t pattern_next(size_t i, size_t n) {
    size_t step = n <= ((size_t)1 << 20) ? 4096 : 65536;
    if (n <= 1024 || i + 1 < 64 || i + 65 >= n || (i + 1) % step < 16 || (i + 1) % step >= step - 16) return i + 1;
    size_t boundary = (i + step) / step * step - 16;
    if (boundary <= i) boundary += step;
    return boundary < n - 64 ? boundary : n - 64;
}
__attribute__((unused)) static void pattern_fill(void *p, size_t from, size_t to, uint64_t key) {
    for (size_t i = from; i < to; i++) ((unsigned char *)p)[i] = pattern_at(key, i);
}
// The first byte that differs, or `to`.
__attribute__((unused)) static size_t pattern_differs(const void *p, size_t from, size_t to, uint64_t key) {
    for (size_t i = from; i < to; i++) {
        if (((const unsigned char *)p)[i] != pattern_at(key, i)) return i;
    }
    return to;
}

// A moved or zero value of `p` that the compiler knows nothing about.
__attribute__((unused)) static inline void *opaque(void *p) {
    __asm__ volatile(""
                     : "+r"(p)::"memory");
    return p;
}

#endif
