// SPDX-License-Identifier: MIT
// Sizes that cannot be had, products that overflow, alignments of every kind.
#include "api/family.h"

#define PAGE ((size_t)4096)
#define GIB ((size_t)1 << 30)

static void must_fail(const maker_t *k, size_t n) {
    errno = 77;
    void *p = k->make(n);
    if (p || errno != ENOMEM) TEST_FAIL("%s gave %p, errno %d for n = 0x%zx", k->name, p, errno, n);
}

TEST(too_large) {
    for (int k = 0; k < MAKERS; k++) {
        for (size_t i = 0; i <= 65600; i += FAMILY_SANITIZED ? 7 : 1) must_fail(&makers[k], SIZE_MAX - i);
        for (size_t i = 0; i <= 64 + 2 * PAGE; i++) must_fail(&makers[k], (size_t)PTRDIFF_MAX - PAGE + i);
        for (unsigned bit = 48; bit < 64; bit++) {
            must_fail(&makers[k], (size_t)1 << bit);
            must_fail(&makers[k], ((size_t)1 << bit) + PAGE);
            if (bit > 48) must_fail(&makers[k], ((size_t)1 << bit) - PAGE);
        }
    }
}

TEST(products) {
    static const size_t factors[] = {0, 1, 2, 3, 15, 16, 255, 65535, 65536, (size_t)1 << 31, UINT32_MAX,
        (size_t)1 << 32, ((size_t)1 << 32) + 1, ((size_t)1 << 32) - 1, (size_t)1 << 33, (size_t)1 << 62, PTRDIFF_MAX,
        (size_t)PTRDIFF_MAX + 1, SIZE_MAX / 3 + 1, SIZE_MAX / 16, SIZE_MAX / 16 + 1, SIZE_MAX - 1, SIZE_MAX};
    enum { COUNT = sizeof factors / sizeof *factors };
    unsigned char *old = m.malloc(100);
    pattern_fill(old, 0, 100, 1);
    for (int i = 0; i < COUNT; i++) {
        for (int j = 0; j < COUNT; j++) {
            size_t n;
            int overflow = __builtin_mul_overflow(factors[i], factors[j], &n);
            if (!overflow && n < ((size_t)1 << 47)) continue;  // may well succeed: a reservation costs nothing
            errno = 77;
            void *p = m.calloc(factors[i], factors[j]);
            if (p || errno != ENOMEM)
                TEST_FAIL("calloc(0x%zx, 0x%zx) gave %p, errno %d", factors[i], factors[j], p, errno);
            errno = 77;
            p = m.reallocarray(NULL, factors[i], factors[j]);
            if (p || errno != ENOMEM)
                TEST_FAIL("reallocarray(NULL, 0x%zx, 0x%zx) gave %p, errno %d", factors[i], factors[j], p, errno);
            errno = 77;
            p = m.reallocarray(old, factors[i], factors[j]);
            if (p || errno != ENOMEM)
                TEST_FAIL("reallocarray(p, 0x%zx, 0x%zx) gave %p, errno %d", factors[i], factors[j], p, errno);
            CHECK_EQ(pattern_differs(old, 0, 100, 1), 100);
        }
    }
    m.free(old);
}

TEST(a_failed_realloc_keeps_the_block) {
    static const size_t sizes[] = {
        0, 1, 16, 100, 1024, 1025, 30000, 65536, 65537, 300000, 1 << 20, (1 << 20) + 1, 5 << 20};
    static const size_t bad[] = {PTRDIFF_MAX, (size_t)PTRDIFF_MAX + 1, SIZE_MAX, SIZE_MAX - 15, SIZE_MAX - 4095,
        (size_t)1 << 62, (size_t)1 << 48};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int aligned = 0; aligned < 2; aligned++) {
            size_t n = sizes[i];
            void *p = aligned ? m.aligned_alloc(8192, n) : m.malloc(n);
            pattern_fill(p, 0, n, i);
            for (size_t j = 0; j < sizeof bad / sizeof *bad; j++) {
                errno = 77;
                void *q = m.realloc(p, bad[j]);
                if (q || errno != ENOMEM) TEST_FAIL("realloc(%zu bytes, 0x%zx) gave %p, errno %d", n, bad[j], q, errno);
                if (pattern_differs(p, 0, n, i) != n)
                    TEST_FAIL("realloc(%zu bytes, 0x%zx) changed the block", n, bad[j]);
                CHECK_GE(m.usable_size(p), n);
            }
            m.free(p);
        }
    }
}

// ---- alignment ----------------------------------------------------------------------------------

// Each of the functions that take an alignment; they differ in what they refuse.
static void *by_posix(size_t align, size_t n) {
    void *p = &m;
    int saved = errno, error = m.posix_memalign(&p, align, n);
    CHECK_EQ(errno, error == ENOMEM ? ENOMEM : saved);  // as glibc leaves it
    if (!error) return p;
    CHECK_PTR_EQ(p, &m);
    errno = error;
    return NULL;
}
static void *by_aligned(size_t align, size_t n) { return m.aligned_alloc(align, n); }
static void *by_memalign(size_t align, size_t n) { return m.memalign(align, n); }
static const struct {
    const char *name;
    void *(*make)(size_t align, size_t n);
    size_t least;
} aligners[] = {
    {"aligned_alloc", by_aligned, 1},
    {"posix_memalign", by_posix, sizeof(void *)},
    {"memalign", by_memalign, 1},
};
enum { ALIGNERS = 3 };

static void one_aligned(int k, size_t align, size_t n, int must_work) {
    errno = 77;
    char *p = aligners[k].make(align, n);
    if (!p) {
        if (must_work || errno != ENOMEM)
            TEST_FAIL("%s(0x%zx, 0x%zx) failed with errno %d", aligners[k].name, align, n, errno);
        return;
    }
    if (errno != 77) TEST_FAIL("%s(0x%zx, 0x%zx) set errno to %d", aligners[k].name, align, n, errno);
    if (((uintptr_t)p & (align - 1)) || (uintptr_t)p % (n - 1 < 8 ? 8 : 16) || m.usable_size(p) < n)
        TEST_FAIL("%s(0x%zx, 0x%zx) gave %p with %zu bytes", aligners[k].name, align, n, (void *)p, m.usable_size(p));
    size_t usable = m.usable_size(p);
    // Each page of a small one; of the others only the ends, since the memory may not be there.
    if (n < 8 * PAGE) memset(p, 3, usable);
    if (usable) p[0] = 1, p[usable / 2] = 2, p[usable - 1] = 3;
    m.free(p);
}

TEST(every_alignment_to_1_gib) {
    for (int k = 0; k < ALIGNERS; k++) {
        for (size_t align = aligners[k].least; align <= GIB; align *= 2) {
            const size_t sizes[] = {
                0, 1, align / 2, align - 1, align, align + 1, 2 * align - 1, 100, 1024, 5000, 70000, 1100000, 3000000};
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                int must_work = !FAMILY_SANITIZED && sizes[i] <= GIB;
                one_aligned(k, align, sizes[i], must_work);
            }
        }
    }
}

TEST(aligned_blocks_side_by_side) {
    // Groups alive at the same time: aligned blocks must not overlap others.
    enum { GROUP = 16 };
    for (size_t align = 16; align <= ((size_t)4 << 20); align *= 2) {
        for (size_t n = 1; n < ((size_t)3 << 20); n = n * (FAMILY_SANITIZED ? 50 : 5) + 3) {
            unsigned char *p[GROUP];
            for (int i = 0; i < GROUP; i++) {
                p[i] = i % 4 == 3 ? m.malloc(n) : m.aligned_alloc(align, n);
                CHECK(p[i] && (i % 4 == 3 || (uintptr_t)p[i] % align == 0));
                size_t usable = m.usable_size(p[i]), ends = usable < 5000 ? usable : 5000;
                memset(p[i], i, ends);
                memset(p[i] + usable - ends, i, ends);
            }
            for (int i = 0; i < GROUP; i++) {
                size_t usable = m.usable_size(p[i]), ends = usable < 5000 ? usable : 5000;
                for (size_t j = 0; j < ends; j++) {
                    if (p[i][j] != i || p[i][usable - 1 - j] != i)
                        TEST_FAIL("alignment %zu, size %zu: block %d of %zu bytes changed, %zu from an end", align, n,
                            i, usable, j);
                }
                m.free(p[i]);
            }
        }
    }
}

// Pairs where size + alignment is near a power of two, near PTRDIFF_MAX, or overflows.
TEST(pairs_on_the_edge) {
    static const ptrdiff_t offsets[] = {-(ptrdiff_t)PAGE - 1, -(ptrdiff_t)PAGE, -(ptrdiff_t)PAGE + 1, -64, -17, -16, -1,
        0, 1, 15, 16, 17, 64, PAGE - 1, PAGE, PAGE + 1};
    for (int k = 0; k < ALIGNERS; k++) {
        for (unsigned a = 3; a < 64; a++) {
            size_t align = (size_t)1 << a;
            for (unsigned b = 12; b < 64; b++) {
                for (size_t o = 0; o < sizeof offsets / sizeof *offsets; o++) {
                    size_t n = ((size_t)1 << b) + (size_t)offsets[o];
                    // a sample of the slow ones
                    if (n >= GIB && n < ((size_t)1 << 46) && (a * 7 + b * 3 + o) % 8) continue;
                    one_aligned(k, align, n, 0);
                    if (n + align > n) continue;
                    errno = 0;
                    if (aligners[k].make(align, n) || errno != ENOMEM)
                        TEST_FAIL("%s(0x%zx, 0x%zx)", aligners[k].name, align, n);
                }
            }
            for (ptrdiff_t o = -64; o <= 64; o++) {
                errno = 0;
                if (aligners[k].make(align, (size_t)PTRDIFF_MAX + (size_t)o) || errno != ENOMEM)
                    TEST_FAIL("%s(0x%zx, PTRDIFF_MAX + %zd)", aligners[k].name, align, o);
                errno = 0;
                if (aligners[k].make(align, SIZE_MAX - align - 64 + (size_t)o) || errno != ENOMEM)
                    TEST_FAIL("%s(0x%zx, SIZE_MAX - align)", aligners[k].name, align);
                // The size that with the alignment makes exactly 2^64, and those around it.
                if (align < ((size_t)1 << 60)) one_aligned(k, align, (size_t)0 - align + (size_t)o, 0);
            }
        }
    }
}

TEST(posix_memalign_refuses) {
    static const size_t bad[] = {
        0, 1, 2, 3, 4, 5, 7, 9, 12, 24, 100, 4095, 4097, 12288, SIZE_MAX, ((size_t)1 << 63) + 8, PTRDIFF_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        for (size_t n = 0; n < 200000; n = n * 3 + 1) {
            void *p = &m;
            errno = 77;
            int error = m.posix_memalign(&p, bad[i], n);
            if (error != EINVAL || p != &m || errno != 77)
                TEST_FAIL("posix_memalign(%zu, %zu) gave %d, %p, errno %d", bad[i], n, error, p, errno);
        }
    }
}

TEST(aligned_alloc_refuses) {
    static const size_t bad[] = {0, 3, 5, 6, 7, 9, 24, 100, 4095, 4097, 12288, SIZE_MAX, ((size_t)1 << 63) + 1};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        for (size_t n = 0; n < 200000; n = n * 3 + 1) {
            errno = 77;
            void *p = m.aligned_alloc(bad[i], n);
            if (p || errno != EINVAL) TEST_FAIL("aligned_alloc(%zu, %zu) gave %p, errno %d", bad[i], n, p, errno);
        }
    }
}

TEST(memalign_rounds_up) {
    static const size_t given[] = {0, 1, 3, 5, 17, 24, 33, 100, 1000, 4097, 5000, 70000},
                        got[] = {1, 1, 4, 8, 32, 32, 64, 128, 1024, 8192, 8192, 131072};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        for (int round = 0; round < 50; round++) {
            void *p = m.memalign(given[i], 100);
            CHECK(p && (uintptr_t)p % got[i] == 0);
            void *q = m.memalign(given[i], 10000);
            CHECK(q && (uintptr_t)q % got[i] == 0);
            m.free(p);
            m.free(q);
        }
    }
    errno = 77;
    CHECK(!m.memalign(((size_t)1 << 63) + 1, 1));
    CHECK_EQ(errno, EINVAL);  // there is no such power of two
}

TEST(whole_pages) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t n = 0; n < 300000; n = n + n / 3 + 1) {
        void *p = m.valloc(n), *q = m.pvalloc(n);
        CHECK(p && (uintptr_t)p % page == 0);
        CHECK(q && (uintptr_t)q % page == 0);
        CHECK_GE(m.usable_size(p), n);
        CHECK_GE(m.usable_size(q), (n + page - 1) / page * page);
        if (!n) CHECK_GE(m.usable_size(q), page);
        memset(q, 1, m.usable_size(q));
        m.free(p);
        m.free(q);
    }
}

TEST_MAIN()
