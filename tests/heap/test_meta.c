// SPDX-License-Identifier: MIT
// Memory for the heap's own records: descriptors side by side, bitmaps of several sizes, used again.
#include "pages/meta.h"
#include "heap_test.h"

static uint64_t rng;
static size_t below(size_t n) { return test_random(&rng) % n; }

// Groups of foreign blocks find their place by the descriptor's address (remote.c): those of slabs made in a row share
// none.
TEST(descriptors_are_neighbours) {
    rng = test_seed;
    enum { N = 1000 };
    static qy_slab_t *s[N];
    static uint64_t *bits[N];
    for (int i = 0; i < N; i++) {
        CHECK(s[i] = qy_span_new());
        CHECK(bits[i] = qy_meta_bits_new(65u + (unsigned)below(4000)));
    }
    int apart = 0;  // where a region of metadata ends
    for (int i = N / 2; i < N; i++) apart += s[i] != s[i - 1] + 1;
    CHECK_LE(apart, 2);
    for (int i = 0; i < N; i++) qy_span_delete(s[i]);
}

// No two records share a cache line, whatever their sizes.
TEST(each_begins_a_line) {
    for (size_t n = 1; n < 300; n += 7) {
        char *p = qy_meta_alloc(n);
        CHECK(p);
        CHECK_EQ((uintptr_t)p % QY_CACHE_LINE, 0);
        memset(p, 1, n);
    }
}

// Room for n bits is all zero, also when it was used before, and nobody else's.
TEST(bitmaps) {
    enum { N = 64 };
    uint64_t *bits[N];
    uint32_t size[N];
    for (int turn = 0; turn < 4; turn++) {
        for (int i = 0; i < N; i++) {
            static const uint32_t edge[] = {1, 65, 512, 513, 1024, 1025, 2048, 2049, QY_META_BITS_MAX};
            size[i] = edge[(size_t)i % (sizeof edge / sizeof edge[0])];
            CHECK(bits[i] = qy_meta_bits_new(size[i]));
            CHECK(is_zero((char *)bits[i], (size[i] + 63) / 64 * 8));
            fill(bits[i], 0, (size[i] + 63) / 64 * 8, (uint64_t)i);
        }
        for (int i = 0; i < N; i++) {
            check_filled(bits[i], 0, (size[i] + 63) / 64 * 8, (uint64_t)i);
            qy_meta_bits_delete(bits[i], size[i]);
        }
    }
}

TEST_MAIN()
