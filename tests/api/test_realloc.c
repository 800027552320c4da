// SPDX-License-Identifier: MIT
// realloc: the bytes that must be kept are kept, whatever moves, and no others' bytes change.
#include "api/family.h"

#define MIB ((size_t)1 << 20)

static void check(const void *p, size_t n, uint64_t key, size_t from, size_t to) {
    size_t at = pattern_differs(p, 0, n, key);
    if (at != n) TEST_FAIL("realloc from %zu to %zu bytes: byte %zu changed", from, to, at);
}

// As check, but of large blocks only some bytes; all of them are written.
static void mark(unsigned char *p, size_t from, size_t n, uint64_t key) { pattern_fill(p, from, n, key); }
static void check_marks(const unsigned char *p, size_t n, uint64_t key, size_t from, size_t to) {
    for (size_t i = 0; i < n; i = pattern_next(i, n)) {
        if (p[i] != pattern_at(key, i)) TEST_FAIL("realloc from %zu to %zu bytes: byte %zu changed", from, to, i);
    }
}

// A neighbour on each side, which must not change.
typedef struct fence {
    unsigned char *p;
    size_t n;
} fence_t;
static fence_t fence_make(size_t n) {
    fence_t f = {m.malloc(n), n < 4096 ? n : 4096};
    memset(f.p, 0xEE, f.n);
    return f;
}
static void fence_check(fence_t f) {
    for (size_t i = 0; i < f.n; i++) CHECK_EQ(f.p[i], 0xEE);
    m.free(f.p);
}

TEST(null_is_malloc_and_zero_is_free) {
    void *p = m.realloc(NULL, 100);
    CHECK(p && m.usable_size(p) >= 100);
    errno = 77;
    CHECK(!m.realloc(p, 0));
    CHECK_EQ(errno, 77);
    // That it was freed shows in its being given out again: else this takes 8 GiB.
    for (int i = 0; i < 8192; i++) {
        p = m.malloc(MIB);
        memset(p, 1, 16);
        CHECK(!m.realloc(p, 0));
    }
    p = m.reallocarray(NULL, 10, 10);
    pattern_fill(p, 0, 100, 5);
    p = m.reallocarray(p, 100, 100);
    check(p, 100, 5, 100, 10000);
    CHECK(!m.reallocarray(p, 10, 0));
}

TEST(grow_by_steps) {
    // From 1 byte to 4 MiB, by steps of different length.
    static const size_t divisors[] = {1, 3, 10, 100};
    for (size_t d = 0; d < (FAMILY_SANITIZED ? 2 : 4); d++) {
        fence_t before = fence_make(100);
        unsigned char *p = m.malloc(1);
        size_t n = 1;
        mark(p, 0, 1, d);
        while (n < 4 * MIB) {
            size_t bigger = n + 1 + n / divisors[d];
            p = m.realloc(p, bigger);
            CHECK(p && (uintptr_t)p % (bigger > 8 ? 16 : 8) == 0 && m.usable_size(p) >= bigger);
            check_marks(p, n, d, n, bigger);
            mark(p, n, bigger, d);
            n = bigger;
        }
        check(p, n, d, n, n);
        while (n > 1) {
            size_t smaller = n - 1 - (n - 2) / (divisors[d] + 1);
            p = m.realloc(p, smaller);
            CHECK(p && m.usable_size(p) >= smaller);
            check_marks(p, smaller, d, n, smaller);
            n = smaller;
        }
        m.free(p);
        fence_check(before);
    }
}

// Between any two of these sizes.
TEST(across_boundaries) {
    static const size_t sizes[] = {1, 16, 17, 100, 1000, 1023, 1024, 1025, 1152, 4096, 5000, 32768, 65535, 65536, 65537,
        65552, 81920, 81921, 200000, MIB - 16384, MIB - 1, MIB, MIB + 1, MIB + 65536, 2 * MIB - 4096, 2 * MIB - 1,
        2 * MIB, 2 * MIB + 1, 2 * MIB + 4096, 4 * MIB, 5 * MIB + 1};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    for (int i = 0; i < COUNT; i++) {
        for (int j = 0; j < COUNT; j += FAMILY_SANITIZED ? 3 : 1) {
            for (int aligned = 0; aligned < 2; aligned++) {
                size_t from = sizes[i], to = sizes[j], kept = from < to ? from : to;
                fence_t before = fence_make(from);
                unsigned char *p = aligned ? m.aligned_alloc(1024, from) : m.malloc(from);
                fence_t after = fence_make(from);
                memset(p, 0xAA, m.usable_size(p));
                mark(p, 0, from, (uint64_t)i);
                unsigned char *q = m.realloc(p, to);
                CHECK(q && (uintptr_t)q % (to > 8 ? 16 : 8) == 0 && m.usable_size(q) >= to);
                check_marks(q, kept, (uint64_t)i, from, to);
                // All of the new size can be written, and back again.
                memset(q + kept, 0xBB, m.usable_size(q) - kept);
                unsigned char *r = m.realloc(q, from);
                CHECK(r != NULL);
                check_marks(r, kept, (uint64_t)i, to, from);
                for (size_t at = kept; at < from && at < to; at += 97) CHECK_EQ(r[at], 0xBB);
                memset(r, 0xCC, m.usable_size(r));
                m.free(r);
                fence_check(before);
                fence_check(after);
            }
        }
    }
}

TEST(to_and_fro) {
    // A vector that grows to 256 MiB and shrinks, touched sparsely, many times.
    unsigned char *p = NULL;
    for (int round = 0; round < (FAMILY_SANITIZED ? 2 : 10); round++) {
        for (size_t n = 64; n <= 256 * MIB; n *= 2) {
            p = m.realloc(p, n);
            CHECK(p != NULL);
            if (n > 64) CHECK_EQ(p[n / 2 - 1], (unsigned char)(n / 2 % 251));
            p[n - 1] = (unsigned char)(n % 251);
        }
        for (size_t n = 128 * MIB; n >= 64; n /= 2) {
            p = m.realloc(p, n);
            CHECK_EQ(p[n - 1], (unsigned char)(n % 251));
        }
    }
    m.free(p);
}

TEST(random_walk) {
    enum { BLOCKS = 50 };
    static struct {
        unsigned char *p;
        size_t n;
    } block[BLOCKS];
    uint64_t random = test_seed;
    int rounds = FAMILY_SANITIZED ? 3000 : 8000;
    for (int i = 0; i < rounds; i++) {
        size_t k = test_random(&random) % BLOCKS;
        size_t bits = test_random(&random) % (i % 16 ? 17 : 23);
        size_t n = (test_random(&random) & (((size_t)1 << bits) - 1)) + ((size_t)1 << bits);
        if (test_random(&random) % 4 == 0) n = block[k].n + 1 + test_random(&random) % 64;
        unsigned char *p = m.realloc(block[k].p, n);
        CHECK(p && m.usable_size(p) >= n);
        size_t kept = n < block[k].n ? n : block[k].n;
        check_marks(p, kept, k, block[k].n, n);
        mark(p, kept, n, k);
        block[k].p = p;
        block[k].n = n;
    }
    for (int k = 0; k < BLOCKS; k++) {
        check(block[k].p ? (void *)block[k].p : "", block[k].n, (uint64_t)k, block[k].n, block[k].n);
        m.free(block[k].p);
    }
}

TEST_MAIN()
