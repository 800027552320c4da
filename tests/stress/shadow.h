// SPDX-License-Identifier: MIT
// shadow.h: what a test knows of a block: where, how long, and which bytes. The bytes follow from a
// key that no two blocks share, so a block that overlaps another, or is given out twice, differs.
#ifndef QUARRY_TESTS_SHADOW_H
#define QUARRY_TESTS_SHADOW_H

#include <stdatomic.h>

#include "api/family.h"

typedef struct shadow {
    unsigned char *p;  // NULL: no block
    size_t n;
    uint64_t key;
} shadow_t;

static _Atomic uint64_t shadow_keys = 1;

__attribute__((unused)) static void shadow_check(const shadow_t *s, size_t n) {
    for (size_t i = 0; i < n; i = pattern_next(i, n)) {
        if (s->p[i] != pattern_at(s->key, i)) {
            TEST_FAIL("block %p of %zu bytes, key %llu: byte %zu is 0x%02x, not 0x%02x", (void *)s->p, s->n,
                (unsigned long long)s->key, i, s->p[i], pattern_at(s->key, i));
        }
    }
}

// What is promised of n bytes where no alignment is asked for.
__attribute__((unused)) static size_t shadow_least(size_t n) { return n - 1 < 8 ? 8 : 16; }

// A block is new: check what malloc promises and fill it.
__attribute__((unused)) static void shadow_set(shadow_t *s, void *p, size_t n, size_t align) {
    if (!p || (uintptr_t)p % align || m.usable_size(p) < n)
        TEST_FAIL("%zu bytes, alignment %zu: %p with %zu bytes", n, align, p, p ? m.usable_size(p) : 0);
    s->p = p;
    s->n = n;
    s->key = atomic_fetch_add_explicit(&shadow_keys, 1, memory_order_relaxed);
    for (size_t i = 0; i < n; i = pattern_next(i, n)) s->p[i] = pattern_at(s->key, i);
}

// Sizes as programs ask for them: mostly small, each power of two equally likely in its range.
__attribute__((unused)) static size_t shadow_size(uint64_t *random) {
    uint64_t r = test_random(random);
    unsigned kind = r % 1000, bits;
    if (kind < 700) bits = 3 + (r >> 10) % 6;        // 8..511
    else if (kind < 900) bits = 8 + (r >> 10) % 5;   // 256..8191
    else if (kind < 985) bits = 12 + (r >> 10) % 5;  // 4 KiB..128 KiB
    else if (kind < 998) bits = 16 + (r >> 10) % 5;  // 64 KiB..2 MiB
    else bits = 20 + (r >> 10) % 3;                  // 1..8 MiB
    size_t n = ((size_t)1 << bits) + ((r >> 20) & (((size_t)1 << bits) - 1));
    return (r >> 60) == 0 ? (size_t)1 << bits : (r >> 60) == 1 ? (r >> 10) % 17
                                                               : n;
}

// A new block by one of all the ways.
__attribute__((unused)) static void shadow_make(shadow_t *s, uint64_t *random) {
    size_t n = shadow_size(random), align = shadow_least(n);
    uint64_t r = test_random(random) >> 8;
    void *p;
    switch (r % 16) {
    case 0:
    case 1:
        p = m.calloc(r / 16 % 2 ? 1 : n, r / 16 % 2 ? n : 1);
        for (size_t i = 0; p && i < n; i = pattern_next(i, n)) {
            if (((unsigned char *)p)[i]) TEST_FAIL("calloc of %zu bytes: byte %zu of %p is not zero", n, i, p);
        }
        break;
    case 2:
        align = (size_t)16 << r / 16 % 13;
        p = m.aligned_alloc(align, n);
        break;
    case 3:
        align = (size_t)16 << r / 16 % 9;
        if (m.posix_memalign(&p, align, n)) p = NULL;
        break;
    case 4:
        align = 64;
        p = m.memalign(align, n);
        break;
    case 5:
        if (r / 16 % 16) {
            p = m.realloc(NULL, n);
        } else {
            align = 4096;
            p = r / 256 % 2 ? m.valloc(n) : m.pvalloc(n);
        }
        break;
    default: p = m.malloc(n);
    }
    shadow_set(s, p, n, align);
}

__attribute__((unused)) static void shadow_free(shadow_t *s, uint64_t *random) {
    if (!s->p) return;
    shadow_check(s, s->n);
    switch (test_random(random) % 8) {
    case 0: m.free_sized(s->p, s->n); break;
    case 1:
        if (m.realloc(s->p, 0)) TEST_FAIL("realloc(p, 0) is not NULL");
        break;
    default: m.free(s->p);
    }
    s->p = NULL;
}

__attribute__((unused)) static void shadow_resize(shadow_t *s, uint64_t *random) {
    uint64_t r = test_random(random) >> 8;
    size_t n = r % 4 == 0 ? s->n + r / 4 % 100 + 1 : r % 4 == 1                   ? s->n / 2 + 1
                                                 : r % 4 == 2 && s->n < (1 << 20) ? s->n * 2 + 1
                                                                                  : shadow_size(random);
    if (!n) n = 1;
    shadow_check(s, s->n);
    shadow_t old = *s;
    unsigned char *p = r / 16 % 4 ? m.realloc(s->p, n) : m.reallocarray(s->p, 1, n);
    if (!p) TEST_FAIL("realloc from %zu to %zu bytes failed", s->n, n);
    s->p = p;
    // The marks of a block depend on its length: compare those of the old that are in both.
    for (size_t i = 0; i < old.n && i < n; i = pattern_next(i, old.n)) {
        if (p[i] != pattern_at(old.key, i)) TEST_FAIL("realloc from %zu to %zu bytes: byte %zu changed", old.n, n, i);
    }
    shadow_set(s, p, n, shadow_least(n));
}

// ---- options of the stress tests: --ops=N --threads=N ---------------------------------------------

static long stress_ops = 100000, stress_threads = 4;

__attribute__((unused)) static int stress_main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--ops=", 6)) stress_ops = atol(argv[i] + 6);
        if (!strncmp(argv[i], "--threads=", 10)) stress_threads = atol(argv[i] + 10);
    }
    if (stress_ops < 1 || stress_threads < 1 || stress_threads > 64) {
        fprintf(stderr, "--ops=1... --threads=1...64\n");
        return 2;
    }
    return test_main(argc, argv);
}

#endif
