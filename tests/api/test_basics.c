// SPDX-License-Identifier: MIT
// What every allocating function promises for sizes that can be had: alignment, room, errno.
#include <pthread.h>

#include "api/family.h"

#define MIB ((size_t)1 << 20)

// Around every boundary between two ways of allocating.
static const size_t edges[] = {
    0,
    1,
    7,
    8,
    9,
    15,
    16,
    17,
    31,
    32,
    33,
    63,
    64,
    65,
    127,
    128,
    129,
    255,
    256,
    257,
    511,
    512,
    513,
    1008,
    1009,
    1023,
    1024,
    1025,
    1151,
    1152,
    1153,
    2047,
    2048,
    2049,
    4080,
    4095,
    4096,
    4097,
    8191,
    8192,
    8193,
    16383,
    16384,
    16385,
    32767,
    32768,
    32769,
    57344,
    57345,
    65520,
    65535,
    65536,
    65537,
    65552,
    81920,
    131071,
    131072,
    131073,
    262143,
    262145,
    524287,
    524289,
    MIB - 16385,
    MIB - 4096,
    MIB - 1,
    MIB,
    MIB + 1,
    MIB + 4096,
    MIB + 16384,
    2 * MIB - 4097,
    2 * MIB - 1,
    2 * MIB,
    2 * MIB + 1,
    3 * MIB,
    4 * MIB + 1,
};
enum { EDGES = sizeof edges / sizeof *edges };

TEST(aligned_to_16_at_all_sizes_but_the_least) {
    enum { HELD = 64 };
    void *held[HELD] = {0};
    for (size_t n = 0; n <= 70000; n++) {
        void *p = m.malloc(n);
        if (!p || (uintptr_t)p % (n - 1 < 8 ? 8 : 16) || m.usable_size(p) < n)
            TEST_FAIL("malloc(%zu) gave %p with %zu bytes", n, p, m.usable_size(p));
        m.free(held[n % HELD]);
        held[n % HELD] = p;
    }
    for (int i = 0; i < HELD; i++) m.free(held[i]);
}

// All of the usable size belongs to the block: it is written to the last byte in groups of equal
// blocks, whose neighbours keep their bytes.
TEST(usable_size_is_usable) {
    enum { GROUP = 9 };
    for (int k = 0; k < MAKERS; k++) {
        for (int e = 0; e < EDGES; e++) {
            void *p[GROUP];
            size_t usable[GROUP];
            for (int i = 0; i < GROUP; i++) {
                p[i] = makers[k].make(edges[e]);
                size_t least = edges[e] - 1 < 8 && makers[k].align == 16 ? 8 : makers[k].align;
                if (!p[i] || (uintptr_t)p[i] % least)
                    TEST_FAIL("%s gave %p for n = %zu", makers[k].name, p[i], edges[e]);
                usable[i] = m.usable_size(p[i]);
                if (usable[i] < edges[e])
                    TEST_FAIL("%s gave %zu bytes for n = %zu", makers[k].name, usable[i], edges[e]);
                memset(p[i], i + 1, usable[i]);
            }
            for (int i = 0; i < GROUP; i++) {
                for (size_t j = 0; j < usable[i]; j += j < 64 || j + 65 > usable[i] ? 1 : 61) {
                    if (((unsigned char *)p[i])[j] != i + 1)
                        TEST_FAIL("%s, n = %zu: byte %zu of block %d of %zu overlaps", makers[k].name, edges[e], j, i,
                            usable[i]);
                }
                CHECK_EQ(m.usable_size(p[i]), usable[i]);
            }
            for (int i = 0; i < GROUP; i++) m.free(p[(i * 4 + 3) % GROUP]);
        }
    }
}

// The same size, whoever asks: here for blocks of each way of allocating, and from a thread that has a heap of its own.
typedef struct asked {
    void *p[EDGES];
    size_t usable[EDGES];
} asked_t;
static void *ask_here(void *arg) {
    asked_t *a = arg;
    void *own = m.malloc(10);
    CHECK(own);
    for (int e = 0; e < EDGES; e++) CHECK_EQ(m.usable_size(a->p[e]), a->usable[e]);
    m.free(own);
    return NULL;
}
TEST(usable_size_from_another_thread) {
    static asked_t a;
    for (int e = 0; e < EDGES; e++) {
        CHECK(a.p[e] = m.malloc(edges[e]));
        a.usable[e] = m.usable_size(a.p[e]);
        CHECK_GE(a.usable[e], edges[e]);
    }
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, ask_here, &a), 0);
    pthread_join(thread, NULL);
    for (int e = 0; e < EDGES; e++) m.free(a.p[e]);
}

// No more than a quarter is wasted, and above 1 KiB half, up to where whole pages are given; where there are many of a
// size, an eighth.
TEST(little_is_wasted) {
    for (size_t n = 1; n <= 65536; n += 1 + n / 128) {
        void *p = m.malloc(n);
        size_t usable = m.usable_size(p);
        if (usable > n + n / (n <= 1024 ? 4 : 2) + 64) TEST_FAIL("malloc(%zu) has %zu usable bytes", n, usable);
        m.free(p);
    }
    enum { BYTES = 1 << 20,
        MOST = BYTES / 130 };
    static void *p[MOST];
    for (size_t n = 130; n <= 65536; n += n / 3) {
        size_t count = BYTES / n;
        for (size_t i = 0; i < count; i++) CHECK(p[i] = m.malloc(n));
        size_t usable = m.usable_size(p[count - 1]);
        if (usable > n + n / 8) TEST_FAIL("malloc(%zu) has %zu usable bytes, with %zu of them", n, usable, count);
        for (size_t i = 0; i < count; i++) m.free(p[i]);
    }
}

TEST(zero_sizes) {
    enum { EACH = 40 };
    static void *p[MAKERS * EACH];
    for (int i = 0; i < MAKERS * EACH; i++) {
        errno = 77;
        p[i] = makers[i % MAKERS].make(0);
        if (!p[i] || errno != 77) TEST_FAIL("%s gave %p, errno %d for n = 0", makers[i % MAKERS].name, p[i], errno);
        for (int j = 0; j < i; j++) CHECK_NE((uintptr_t)p[i], (uintptr_t)p[j]);
    }
    for (int i = 0; i < MAKERS * EACH; i++) m.free(p[i]);
    void *a = m.calloc(0, 8), *b = m.calloc(8, 0), *c = m.reallocarray(NULL, 0, 8);
    CHECK(a && b && c && a != b && b != c && a != c);
    m.free(a);
    m.free(b);
    m.free(c);
    void *q = m.realloc(NULL, 0);
    CHECK(q);
    m.free(q);
}

TEST(null_is_allowed) {
    errno = 77;
    m.free(NULL);
    m.free_sized(NULL, 0);
    m.free_aligned_sized(NULL, 64, 0);
    CHECK_EQ(m.usable_size(NULL), 0);
    CHECK_EQ(errno, 77);
}

TEST(success_leaves_errno) {
    for (int k = 0; k < MAKERS; k++) {
        for (int e = 0; e < EDGES; e++) {
            errno = 77;
            void *p = makers[k].make(edges[e]);
            if (errno != 77) TEST_FAIL("%s set errno to %d for n = %zu", makers[k].name, errno, edges[e]);
            p = m.realloc(p, edges[EDGES - 1 - e] + 1);
            CHECK(p && errno == 77);
            p = m.reallocarray(p, 3, edges[e] / 2 + 1);
            CHECK(p && errno == 77);
            m.free(p);
            CHECK_EQ(errno, 77);
        }
    }
}

static void *free_here(void *p) {
    errno = 78;
    m.free(p);
    CHECK_EQ(errno, 78);
    return NULL;
}
static void *free_many_here(void *blocks) {
    for (void **p = blocks; *p; p++) free_here(*p);
    return NULL;
}

TEST(free_leaves_errno) {
    for (int e = 0; e < EDGES; e++) {
        free_here(m.malloc(edges[e]));
        free_here(m.aligned_alloc(4096, edges[e]));
        void *p = m.malloc(edges[e]);
        errno = 79;
        m.free_sized(p, edges[e]);
        p = m.aligned_alloc(256, edges[e]);
        m.free_aligned_sized(p, 256, edges[e]);
        CHECK_EQ(errno, 79);
        CHECK(!m.realloc(m.malloc(edges[e]), 0));
        CHECK_EQ(errno, 79);
    }
    // In another thread, and enough of them that whole groups go home.
    static void *blocks[3000 + EDGES + 1];
    for (int i = 0; i < 3000 + EDGES; i++) blocks[i] = m.malloc(i < 3000 ? 1 + (size_t)i % 2048 : edges[i - 3000]);
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, free_many_here, blocks), 0);
    pthread_join(thread, NULL);
}

static void memory(long *ret_all, long *ret_resident) {
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f && fscanf(f, "%ld %ld", ret_all, ret_resident) == 2);
    fclose(f);
}

// What was freed is given out again: else each of these takes gigabytes of address space.
TEST(freed_blocks_are_reused) {
    for (int e = 0; e < EDGES; e++) {
        size_t n = edges[e], rounds = n < 16384 ? 100000 : 2000;
        long all[2], resident[2];
        memory(&all[0], &resident[0]);
        for (size_t i = 0; i < rounds; i++) {
            char *p = m.malloc(n), *q = m.malloc(n);
            if (n) *(volatile char *)p = *(volatile char *)q = 1;
            m.free(i % 2 ? p : q);
            m.free(i % 2 ? q : p);
        }
        memory(&all[1], &resident[1]);
        long page = sysconf(_SC_PAGESIZE);
        size_t taken = (size_t)(all[1] > all[0] ? all[1] - all[0] : 0) * (size_t)page;
        if (taken > 64 * MIB + 8 * n) TEST_FAIL("%zu bytes, freed and taken again, cost %zu MiB", n, taken / MIB);
        CHECK_LT((resident[1] - resident[0]) * page, (long)(16 * MIB));
    }
}

TEST(all_frees_free_all) {
    // Each of the functions that free, for each of those that allocate.
    for (int k = 0; k < MAKERS; k++) {
        for (int e = 0; e < EDGES; e++) {
            size_t n = edges[e];
            m.free(makers[k].make(n));
            m.free_sized(makers[k].make(n), n);
            m.free_aligned_sized(makers[k].make(n), makers[k].align, n);
            CHECK(!m.realloc(makers[k].make(n), 0));
            CHECK(!m.reallocarray(makers[k].make(n), 0, 16));
        }
    }
}

#if FAMILY_QUARRY
TEST(version) {
    unsigned a, b, c;
    CHECK_EQ(sscanf(quarry_version(), "%u.%u.%u", &a, &b, &c), 3);
}
#endif

TEST_MAIN()
