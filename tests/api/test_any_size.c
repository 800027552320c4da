// SPDX-License-Identifier: MIT
// Objects of every power of two from 1 MiB up, as many as the kernel has address space for, and hardly any memory:
// whatever entries
// of a table their addresses share. And of more than the machine has, as the kernel's own judgement is.
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

#include "api/family.h"

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
enum { MOST = 10000 };
static char **object;

static void prepare(void) {
    if (object) return;
    object = mmap(NULL, MOST * sizeof *object, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(object != MAP_FAILED);
}

static bool kernel_gives(size_t n) {
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return false;
    CHECK_EQ(munmap(p, n), 0);
    return true;
}

// Of 128 TiB, which most kernels give, some is not free or not aligned.
static size_t count_of(size_t n, size_t most) {
    size_t count = ((size_t)80 << 40) / n;
    return count < most ? count : most;
}

static void mark(char *p, size_t n, size_t i) {
    memcpy(p, &i, sizeof i);
    p[n - 1] = (char)i;
}
static void check(const char *p, size_t n, size_t i) {
    size_t had;
    memcpy(&had, p, sizeof had);
    if (had != i || p[n - 1] != (char)i || m.usable_size((void *)(uintptr_t)p) < n)
        TEST_FAIL("object %zu of %zu MiB is damaged", i, n / MIB);
}

// Blocks and runs in between, which must be told from them.
static void small_ones(size_t i) {
    char *s = m.malloc(100 + i), *r = i % 50 ? NULL : m.malloc(100000 + i * 100);
    CHECK(s);
    m.free(r);
    m.free(s);
}

static void *make(int how, size_t n) {
    if (how == 1) return m.calloc(1, n);
    return how == 2 ? m.aligned_alloc(n < 4 * GIB ? n : 4 * GIB, n) : m.malloc(n);
}

// how: malloc, calloc, aligned to itself; the first ones then grow, which may touch no page that was not written.
static void many(size_t n, size_t most, int how) {
    prepare();
    size_t count = count_of(n, most);
    for (size_t i = 0; i < count; i++) {
        object[i] = make(how, n);
        if (!object[i]) TEST_FAIL("%zu of %zu objects of %zu MiB", i, count, n / MIB);
        mark(object[i], n, i);
        small_ones(i);
    }
    for (size_t i = 0; i < count; i++) check(object[i], n, i);
    size_t larger = n + n / 4, shrunk = n / 2 + 3 * MIB;
    for (size_t i = 0; i < count && i < 100; i++) {
        CHECK((object[i] = m.realloc(object[i], i % 3 ? larger : shrunk)));
        object[i][(i % 3 ? larger : shrunk) - 1] = (char)i;
        size_t had;
        memcpy(&had, object[i], sizeof had);
        CHECK_EQ(had, i);
        if (i % 3) CHECK_EQ(object[i][n - 1], (char)i);
    }
    for (size_t i = 0; i < count; i++) m.free(object[i]);
}

TEST(powers_of_two) {
    if (FAMILY_TSAN) TEST_SKIP("needs a build without ThreadSanitizer, which has most addresses");
    for (size_t n = MIB; n <= 64 * 1024 * GIB; n *= 2) {
        if (!kernel_gives(n + n / 4)) {
            printf("  the kernel gives less than %zu GiB\n", (n + n / 4) / GIB);
            break;
        }
        many(n, n > 32 * MIB ? MOST : 500, 0);
    }
}
TEST(zeroed) {
    if (FAMILY_TSAN) TEST_SKIP("needs a build without ThreadSanitizer, which has most addresses");
    many(4 * GIB, 2000, 1);
}
TEST(aligned_to_themselves) {
    if (FAMILY_TSAN) TEST_SKIP("needs a build without ThreadSanitizer, which has most addresses");
    many(64 * MIB, 3000, 2);
    many(GIB, 3000, 2);
    many(4 * GIB, 3000, 2);
}

// ---- more than the machine has --------------------------------------------------------------------------

static int overcommit(void) {
    char c = '0';
    FILE *f = fopen("/proc/sys/vm/overcommit_memory", "r");
    if (f) {
        c = (char)fgetc(f);
        fclose(f);
    }
    return c - '0';
}

// Refused wherever a mapping is; and what the kernel gives can be had, exactly.
TEST(more_than_the_machine) {
    struct sysinfo si;
    CHECK_EQ(sysinfo(&si), 0);
    size_t all = (si.totalram + si.totalswap) * si.mem_unit, n = 4 * all;
    if (kernel_gives(n) != (overcommit() == 1)) TEST_SKIP("needs a kernel that judges sizes by vm.overcommit_memory");
    bool given = kernel_gives(n);
    void *p = m.malloc(n);
    CHECK_EQ(p != NULL, given);
    m.free(p);
    p = m.calloc(4, all);
    CHECK_EQ(p != NULL, given);
    m.free(p);
    p = m.aligned_alloc(1 << 22, n);
    CHECK_EQ(p != NULL, given);
    m.free(p);
    static const size_t from[] = {100, 100000, 1 << 20, 10 << 20, 100 << 20};
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        char *small = m.malloc(from[i]);
        CHECK(small);
        mark(small, from[i], i);
        errno = 0;
        p = m.realloc(small, n);
        CHECK_EQ(p != NULL, given);
        if (!p) CHECK_EQ(errno, ENOMEM);
        check(p ? p : small, from[i], i);
        m.free(p ? p : small);
    }
    // Many that fit each are more than there is in all: that is no reason to refuse them, but where the kernel promises
    // no more than it has.
    if (overcommit() == 2) return;
    prepare();
    for (size_t i = 0; i < 20; i++) CHECK((object[i] = m.malloc(all / 2)));
    for (size_t i = 0; i < 20; i++) CHECK((object[i] = m.realloc(object[i], all / 2 + all / 4)));
    for (size_t i = 0; i < 20; i++) m.free(object[i]);
}

// The largest that the kernel gives can be had, and grown to: where an object may get more than asked for, that is no
// reason to refuse it.
TEST(exactly_what_the_kernel_gives) {
    size_t low = GIB, high = (size_t)1 << 47;
    if (!kernel_gives(low)) TEST_SKIP("needs more than 1 GiB");
    while (high - low > 64 * MIB) {
        size_t n = low + (high - low) / 2 / 4096 * 4096;
        if (kernel_gives(n)) low = n;
        else high = n;
    }
    low -= 256 * MIB;  // others may come and go
    char *p = m.malloc(low);
    CHECK(p);
    m.free(p);
    p = m.malloc(64 * MIB);
    CHECK(p);
    mark(p, 64 * MIB, 5);
    CHECK((p = m.realloc(p, low - GIB / 2)));
    CHECK((p = m.realloc(p, low)));
    size_t had;
    memcpy(&had, p, sizeof had);
    CHECK_EQ(had, 5);
    m.free(p);
}

TEST_MAIN()
