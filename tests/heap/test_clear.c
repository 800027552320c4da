// SPDX-License-Identifier: MIT
// calloc above 1 MiB: which objects are runs, that they are zero, and what that asks of the kernel.
#include <limits.h>
#include <sys/resource.h>

#include "heap/alloc.h"
#include "heap/clear.h"
#include "heap_test.h"

#define MIB ((size_t)1 << 20)

static long faults(void) {
    struct rusage used;
    CHECK_EQ(getrusage(RUSAGE_THREAD, &used), 0);
    return used.ru_minflt;
}

// The kernel's page of zeros is none of them.
static long pages_now(void) {
    long size, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f && fscanf(f, "%ld %ld", &size, &pages) == 2);
    fclose(f);
    return pages;
}

static bool is_run(const void *p) {
    const qy_slab_t *s = span_of(p);
    return s && s->kind == QY_SPAN_RUN;
}

static char *zeros(size_t n) {
    char *p = quarry_calloc(1, n);
    CHECK(p != NULL);
    return p;
}

// One page in so many; 0: none.
static void touch(char *p, size_t n, size_t every) {
    for (size_t at = 0; every && at < n; at += every * 4096) memset(p + at, 0xA5, qy_min(4096, n - at));
}

static long pages_of(size_t n) { return (long)(n / qy_os_page_size()); }

static bool counts_are_the_kernels(void) { return !QY_ASAN && !QY_TSAN && qy_os_page_size() == 4096; }

// ---- touched ones keep their pages ---------------------------------------------------------------

static void touched_again(void *arg) {
    size_t n = *(const size_t *)arg;
    for (size_t every = 1; every <= 4; every *= 2) {
        long least = LONG_MAX;
        for (int round = 0; round < 8; round++) {
            long before = faults();
            char *p = zeros(n);
            CHECK(is_run(p) || round < 2);
            touch(p, n, every);
            least = qy_min(least, faults() - before);
            quarry_free(p);
        }
        if (counts_are_the_kernels()) CHECK_LT(least, pages_of(n) / 32);
    }
    verify_all();
}
TEST(touched_ones_keep_their_pages) {
    static const size_t sizes[] = {MIB + 1, 4 * MIB, 7 * MIB - 5, 20 * MIB, 50 * MIB};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) run_apart(touched_again, (void *)(uintptr_t)&sizes[i]);
}

// ---- untouched ones are free ---------------------------------------------------------------------

static void untouched(void *unused) {
    (void)unused;
    const size_t n = 5 * MIB;
    char *p = zeros(n);
    touch(p, n, 1);
    quarry_free(p);
    p = zeros(n);  // as touched ones are had
    CHECK(is_run(p));
    touch(p, n, 1);
    quarry_free(p);
    p = zeros(n);  // nobody knows yet that it will not be touched: its pages were there before
    CHECK(is_run(p));
    quarry_free(p);
    quarry_trim(0);
    long before = faults(), most = pages_now() + 64;
    for (int round = 0; round < 100; round++) {
        p = zeros(n);
        CHECK(!is_run(p));
        if (counts_are_the_kernels()) CHECK_LE(pages_now(), most);
        quarry_free(p);
    }
    if (counts_are_the_kernels()) CHECK_LE(faults() - before, 100);
    // Once they are touched, it takes as long at most.
    for (int round = 0; round < 130 && !is_run(p = zeros(n)); round++) {
        touch(p, n, 1);
        quarry_free(p);
    }
    CHECK(is_run(p));
    quarry_free(p);
    verify_all();
}
TEST(untouched_ones_are_free) { run_apart(untouched, NULL); }

static void one_size(void *unused) {
    (void)unused;
    for (int round = 0; round < 20; round++) {
        char *p = zeros(16 * MIB), *q = zeros(10 * MIB);
        CHECK(!is_run(q));
        touch(p, 16 * MIB, 1);
        quarry_free(p);
        quarry_free(q);
    }
}
TEST(other_sizes_are_others) { run_apart(one_size, NULL); }

// ---- what is cleared makes no memory -------------------------------------------------------------

static void half(void *unused) {
    (void)unused;
    if (!counts_are_the_kernels()) return;
    const size_t n = 32 * MIB;
    long before = pages_now();
    for (int round = 0; round < 6; round++) {
        char *p = zeros(n);
        CHECK(is_run(p) || round == 0);
        touch(p, n, 2);
        CHECK_LE(pages_now() - before, pages_of(n) / 2 + 256);
        quarry_free(p);
    }
}
TEST(untouched_pages_get_no_memory) { run_apart(half, NULL); }

// ---- it is zero ----------------------------------------------------------------------------------

// Other objects leave their bytes on the units, some of which are clean by the next time.
static void random_steps(void *unused) {
    (void)unused;
    enum { MANY = 6 };
    uint64_t rng = test_seed;
    char *p[MANY] = {NULL};
    size_t n[MANY] = {0};
    unsigned runs = 0;
    for (int step = 0; step < 400; step++) {
        unsigned i = (unsigned)(test_random(&rng) % MANY);
        quarry_free(p[i]);
        n[i] = MIB + 1 + test_random(&rng) % (5 * MIB);
        if (test_random(&rng) % 4) {
            p[i] = zeros(n[i]);
            runs += is_run(p[i]);
            CHECK(is_zero(p[i], n[i]));
        } else {
            CHECK(p[i] = quarry_malloc(n[i]));
        }
        size_t from = test_random(&rng) % n[i];
        memset(p[i] + from, 0xC3, test_random(&rng) % (n[i] - from + 1));
        p[i][n[i] - 1] = 1;
        if (step % 16 == 0) purge_units(0, 0, 0, test_random(&rng) % (8 * MIB));
        if (step % 64 == 0) qy_units_release();
    }
    CHECK_GT(runs, 50);
    for (int i = 0; i < MANY; i++) quarry_free(p[i]);
    verify_all();
}
TEST(it_is_zero) { run_apart(random_steps, NULL); }

// In a heap of its own, and aligned.
static void otherwise(void *unused) {
    (void)unused;
    const size_t n = 3 * MIB + 77;
    quarry_heap_t *h = quarry_heap_create(NULL);
    CHECK(h);
    for (int round = 0; round < 8; round++) {
        char *p = quarry_heap_calloc(h, 1, n), *q = qy_aligned_calloc((size_t)64 << 10, n);
        CHECK(p && is_zero(p, n) && q && is_zero(q, n));
        CHECK((is_run(p) && is_run(q)) || round < 2);
        memset(p, 1, n);
        memset(q, 2, n);
        quarry_free(q);
        quarry_free(p);
    }
    quarry_heap_destroy(h);
    verify_all();
}
TEST(other_ways_to_have_zeros) { run_apart(otherwise, NULL); }

// ---- the program, or the kernel, does otherwise --------------------------------------------------

static void no_access(void *unused) {
    (void)unused;
    const size_t n = 8 * MIB;
    for (int round = 0; round < 3; round++) {
        char *p = zeros(n);
        CHECK(!is_run(p));
        touch(p, n, 1);
        CHECK_EQ(mprotect(p, n, PROT_NONE), 0);
        quarry_free(p);
    }
}
TEST(access_was_taken_away) { run_apart(no_access, NULL); }

static void refused(void *unused) {
    (void)unused;
    const size_t n = 12 * MIB;
    char *p = zeros(n);
    touch(p, n, 1);
    quarry_free(p);
    CHECK(qy_clear_pays(n));
    quarry_os_fault(1, 1, FAULT(COMMIT) | FAULT(RESERVE));
    p = zeros(n);
    quarry_os_fault(0, 0, 0);
    CHECK(!is_run(p) && is_zero(p, n));
    touch(p, n, 1);
    quarry_free(p);
    p = zeros(n);
    CHECK(is_run(p) && is_zero(p, n));
    touch(p, n, 1);
    quarry_free(p);
    quarry_os_fault(1, 1, FAULT(MAP));
    p = zeros(n);  // whose pages are there
    char *q = zeros(n / 2);
    quarry_os_fault(0, 0, 0);
    CHECK(is_run(p) && is_zero(p, n) && is_run(q) && is_zero(q, n / 2));
    quarry_free(p);
    quarry_free(q);
    verify_all();
}
TEST(the_kernel_refuses) { run_apart(refused, NULL); }

TEST_MAIN()
