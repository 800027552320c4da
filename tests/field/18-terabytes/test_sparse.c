// SPDX-License-Identifier: MIT
// Sparse objects: much more address space than memory. A size that is a power of two is as good as any other.
#include <sys/mman.h>

#include "field.h"

#define GIB ((size_t)1 << 30)
static void *plain(size_t n) { return malloc(n); }
static void *zeroed(size_t n) { return calloc(1, n); }
static void *aligned(size_t n) { return aligned_alloc(GIB, n); }
static void *shared_size(size_t n) { return realloc(malloc((size_t)50 << 20), n); }

// So many objects at once, told apart, with small blocks in between, and grown by a quarter if asked.
static void sparse(size_t n, int count, void *(*make)(size_t), int grow) {
    char **p = calloc((size_t)count, sizeof *p);
    for (int i = 0; i < count; i++) {
        p[i] = make(n);
        if (!p[i]) TEST_FAIL("%d of %d objects of %zu MiB: errno %d", i, count, n >> 20, errno);
        p[i][0] = p[i][n / 2] = p[i][n - 1] = (char)i;
        free(malloc(100 + (size_t)i));
    }
    double before = memory_mib(1);
    for (int i = 0; grow && i < count; i++) {
        char *q = realloc(p[i], n + n / 4);
        if (!q) TEST_FAIL("realloc of object %d: errno %d", i, errno);
        p[i] = q;
        q[n + n / 4 - 1] = (char)i;
    }
    if (memory_mib(1) - before > 200) TEST_FAIL("realloc touched %.0f MiB that nobody wrote", memory_mib(1) - before);
    for (int i = 0; i < count; i++) {
        CHECK_EQ(p[i][0], (char)i);
        CHECK_EQ(p[i][n / 2], (char)i);
        CHECK_EQ(p[i][n - 1], (char)i);
        CHECK_GE(malloc_usable_size(p[i]), n);
    }
    for (int i = 0; i < count; i++) free(p[i]);
    for (int i = 0; i < 1000; i++) free(opaque(malloc((size_t)i * 1000)));
    free(p);
}
TEST(malloc_1m_times_10000) { sparse((size_t)1 << 20, 10000, plain, 0); }
TEST(malloc_32m_times_10000) { sparse((size_t)32 << 20, 10000, plain, 0); }
TEST(malloc_64m_times_10000) { sparse((size_t)64 << 20, 10000, plain, 0); }
TEST(malloc_256m_times_10000) { sparse((size_t)256 << 20, 10000, plain, 0); }
TEST(malloc_1g_times_10000) { sparse(GIB, 10000, plain, 0); }
TEST(malloc_4g_times_1000) { sparse(4 * GIB, 1000, plain, 0); }
TEST(malloc_4g_times_10000) { sparse(4 * GIB, 10000, plain, 0); }
TEST(calloc_4g_times_1000) { sparse(4 * GIB, 1000, zeroed, 0); }
TEST(aligned_4g_times_400) { sparse(4 * GIB, 400, aligned, 0); }
TEST(malloc_8g_times_1000) { sparse(8 * GIB, 1000, plain, 0); }
TEST(odd_5g_times_1000) { sparse(5 * GIB + 12345, 1000, plain, 0); }
TEST(grown_from_50m_to_4g_times_300) { sparse(4 * GIB, 300, shared_size, 0); }
TEST(realloc_4g_times_100) { sparse(4 * GIB, 100, plain, 1); }
TEST(realloc_8g_times_100) { sparse(8 * GIB, 100, plain, 1); }
TEST(realloc_512m_times_1000) { sparse(GIB / 2, 1000, plain, 1); }

// Made and dropped in turn, so that places of the address space are used again.
TEST(come_and_go_8g) {
    for (int round = 0; round < 3; round++) sparse(8 * GIB, 300, plain, 0);
}
// Sizes that are larger than the machine are refused by the kernel's judgement; where it gives them, they are as good.
static void as_the_kernel_gives(size_t n, int count) {
    void *map = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) TEST_SKIP("needs a kernel that gives %zu GiB (vm.overcommit_memory=1)", n >> 30);
    munmap(map, n);
    sparse(n, count, plain, 0);
}
TEST(malloc_16g_times_300) { as_the_kernel_gives(16 * GIB, 300); }
TEST(malloc_64g_times_64) { as_the_kernel_gives(64 * GIB, 64); }
TEST(malloc_1t_times_8) { as_the_kernel_gives(1024 * GIB, 8); }

TEST_MAIN()
