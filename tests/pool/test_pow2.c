// SPDX-License-Identifier: MIT
// test_pow2.c: the pow2 pool as its users see it; runs under every kind of checking.
#include <pthread.h>
#include <stdalign.h>

#include <quarry/pow2.h>
#include <quarry/tlsf.h>

#include "bytes.h"
#include "captured.h"
#include "os/fake.h"
#include "pool/pool.h"
#include "pool_test.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define SLOW (QY_TSAN || QY_ASAN)

static quarry_pool_t *make(unsigned partitions) {
    quarry_pool_t *pool = quarry_pow2_create(&(quarry_pow2_options_t){.pool.name = "test", .partitions = partitions});
    CHECK(pool);
    return pool;
}
static quarry_pow2_stats_t figures(quarry_pool_t *pool) {
    quarry_pow2_stats_t s;
    quarry_pow2_stats(pool, &s);
    return s;
}

// ---- sizes ------------------------------------------------------------------------------------------------------

TEST(the_block_is_the_next_power_of_two) {
    quarry_pool_t *pool = make(1);
    for (size_t size = 0; size <= 512 * KIB; size += size < 300 ? 1 : size / 7) {
        char *p = quarry_pool_alloc(pool, size, 1, 0);
        size_t power = 32;
        while (power < size) power *= 2;
        CHECK(p);
        CHECK_EQ((uintptr_t)p % 16, 0);
        if (plain(pool)) {
            CHECK_EQ(quarry_pool_usable(pool, p), power);  // a power of two gets just itself
            CHECK_EQ((uintptr_t)p % power, 0);
        }
        memset(p, 0x5A, size);
        quarry_pool_free(pool, p, size);
    }
    end(pool);
}

TEST(sizes_near_powers_of_two) {
    quarry_pool_t *pool = make(2);
    for (size_t power = 1; power <= (plain(pool) ? 16 * MIB : 2 * MIB); power *= 2) {
        for (int d = -1; d <= 1; d++) {
            size_t size = power + (size_t)d;
            char *p = quarry_pool_alloc(pool, size, 16, 0);
            CHECK(p && quarry_pool_usable(pool, p) >= size);
            if (size) p[0] = p[size - 1] = 1;
            CHECK_EQ(quarry_pool_check(pool), 0);
            quarry_pool_free(pool, p, size);
        }
    }
    end(pool);
}

TEST(large_blocks_are_mappings) {
    quarry_pool_t *pool = quarry_pow2_create(&(quarry_pow2_options_t){.partitions = 1, .give_back_bytes = 1});
    if (!plain(pool)) TEST_SKIP("needs pools:off: the observer adds to sizes");
    char *below = quarry_pool_alloc(pool, 512 * KIB, 16, 0), *above = quarry_pool_alloc(pool, 512 * KIB + 1, 16, 0);
    quarry_pow2_stats_t s = figures(pool);
    CHECK_EQ(s.mapped_blocks, 1);
    CHECK_LE(s.mapped_bytes, 512 * KIB + qy_os_page_size());  // less than a page is lost
    CHECK_EQ(quarry_pool_usable(pool, above), s.mapped_bytes);
    memset(above, 1, 512 * KIB + 1);
    size_t before = held(pool);
    quarry_pool_free(pool, above, 512 * KIB + 1);
    CHECK_EQ(held(pool), before - s.mapped_bytes);  // at once
    quarry_pool_free(pool, below, 512 * KIB);
    for (size_t i = 1; i <= 300; i++) CHECK(quarry_pool_alloc(pool, MIB, 16, 0));  // more than the first table holds
    CHECK_EQ(figures(pool).mapped_blocks, 300);
    end(pool);
}

TEST(zeroed_whether_fresh_or_used) {
    quarry_pool_t *pool = make(1);
    for (int round = 0; round < 3; round++) {
        for (size_t size = 1; size < (SLOW || !plain(pool) ? 400 * KIB : 3 * MIB); size = size * 3 + 5) {
            unsigned char *p = quarry_pool_alloc(pool, size, 16, QUARRY_POOL_ZERO);
            if (bytes_nonzero(p, size) < size) TEST_FAIL("byte %zu of %zu is not zero", bytes_nonzero(p, size), size);
            bytes_fill(p, size, size);
            p = quarry_pool_resize(pool, p, size, size / 2 + 1, 16, QUARRY_POOL_ZERO);
            p = quarry_pool_resize(pool, p, size / 2 + 1, size * 2, 16, QUARRY_POOL_ZERO);
            size_t kept = size / 2 + 1;
            if (bytes_differ(p, kept, size) < kept)
                TEST_FAIL("byte %zu of %zu changed", bytes_differ(p, kept, size), size);
            if (bytes_nonzero(p + kept, size * 2 - kept) < size * 2 - kept)
                TEST_FAIL("after resize of %zu it is not zero", size);
            memset(p, 0xFF, size * 2);
            quarry_pool_free(pool, p, size * 2);
        }
        if (round == 1) quarry_pow2_trim(pool);
    }
    end(pool);
}

TEST(alignments) {
    quarry_pool_t *pool = make(1);
    for (unsigned log = 0; log < (plain(pool) ? 25 : 13); log++) {
        for (size_t size = 1; size < 3 * MIB; size = size * 17 + 3) {
            void *p = quarry_pool_alloc(pool, size, (size_t)1 << log, 0);
            CHECK(p);
            CHECK_EQ((uintptr_t)p & (((size_t)1 << log) - 1), 0);
            p = quarry_pool_resize(pool, p, size, size * 2, (size_t)1 << log, 0);
            CHECK_EQ((uintptr_t)p & (((size_t)1 << log) - 1), 0);
            quarry_pool_free(pool, p, size * 2);
        }
    }
    errno = 0;
    CHECK(!quarry_pool_alloc(pool, 8, 3, 0) && errno == EINVAL);
    errno = 0;
    CHECK(!quarry_pool_alloc(pool, 8, (size_t)1 << 31, 0) && errno == EINVAL);
    end(pool);
}

TEST(refusals) {
    quarry_pool_t *pool = make(1);
    static const size_t too_large[] = {
        SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 2 + 1, SIZE_MAX - 4096, (size_t)1 << 62, (size_t)1 << 48};
    for (size_t i = 0; i < sizeof too_large / sizeof *too_large; i++) {
        errno = 0;
        CHECK(!quarry_pool_alloc(pool, too_large[i], 16, 0));
        CHECK_EQ(errno, ENOMEM);
    }
    char *p = quarry_pool_alloc(pool, 10, 1, 0);
    strcpy(p, "unchanged");
    CHECK(!quarry_pool_resize(pool, p, 10, (size_t)1 << 48, 1, 0));
    CHECK_STR_EQ(p, "unchanged");
    static const quarry_pow2_options_t wrong[] = {{.partitions = 65}, {.flags = 4}, {.region_bytes = 2048},
        {.region_bytes = 3 * MIB}, {.region_bytes = 2048 * MIB}, {.map_bytes = 32}, {.map_bytes = 3000},
        {.region_bytes = MIB, .map_bytes = 2 * MIB}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        errno = 0;
        CHECK(!quarry_pow2_create(&wrong[i]) && errno == EINVAL);
    }
    end(pool);
}

// ---- resize --------------------------------------------------------------------------------------------------------

static void fill(char *p, size_t n) { bytes_fill(p, n, 0); }
static void filled(const char *p, size_t n) {
    if (bytes_differ(p, n, 0) < n) TEST_FAIL("byte %zu of %zu changed", bytes_differ(p, n, 0), n);
}

TEST(resize_joins_with_either_neighbour) {
    quarry_pool_t *pool = make(1);
    if (!plain(pool)) TEST_SKIP("needs pools:off: a checked pool always moves");
    char *p[4];
    for (int i = 0; i < 4; i++) p[i] = quarry_pool_alloc(pool, 4096, 16, 0);
    for (int i = 1; i < 4; i++) CHECK_PTR_EQ(p[i], p[0] + 4096 * i);  // buddies in a row
    fill(p[0], 4096);
    quarry_pool_free(pool, p[1], 4096);
    CHECK_PTR_EQ(quarry_pool_resize(pool, p[0], 4096, 8192, 16, 0), p[0]);  // to the right
    filled(p[0], 4096);
    CHECK_EQ(figures(pool).resized_by_join, 1);
    fill(p[3], 4096);
    quarry_pool_free(pool, p[2], 4096);
    CHECK_PTR_EQ(quarry_pool_resize(pool, p[3], 4096, 6000, 16, 0), p[2]);  // to the left: moved down
    filled(p[2], 4096);
    fill(p[2], 6000);
    quarry_pool_free(pool, p[0], 8192);
    CHECK_PTR_EQ(quarry_pool_resize(pool, p[2], 6000, 16000, 16, 0), p[0]);  // left again, and then as far as it goes
    filled(p[0], 6000);
    CHECK_EQ(quarry_pool_check(pool), 0);
    CHECK_PTR_EQ(quarry_pool_resize(pool, p[0], 16000, 100, 16, 0), p[0]);  // smaller: in place, the rest is free
    filled(p[0], 100);
    CHECK_EQ(quarry_pool_usable(pool, p[0]), 128);
    CHECK_PTR_EQ(quarry_pool_resize(pool, p[0], 100, 128, 16, 0), p[0]);  // large enough
    quarry_pool_free(pool, p[0], 128);
    CHECK_EQ(figures(pool).free_bytes, figures(pool).region_bytes);
    end(pool);
}

TEST(resize_without_joining) {
    quarry_pool_t *pool = quarry_pow2_create(&(quarry_pow2_options_t){.partitions = 1, .flags = QUARRY_POW2_NO_MERGE});
    char *p = quarry_pool_alloc(pool, 4096, 16, 0);
    fill(p, 4096);
    char *q = quarry_pool_resize(pool, p, 4096, 8192, 16, 0);
    CHECK(q != p);
    filled(q, 4096);
    CHECK_EQ(figures(pool).resized_by_join, 0);
    end(pool);
}

TEST(resize_of_mappings_copies_nothing) {
    quarry_pool_t *pool = make(1);
    if (!plain(pool)) TEST_SKIP("needs pools:off: a checked pool always moves");
    char *p = quarry_pool_alloc(pool, 2 * MIB, 16, 0), *in_the_way = quarry_pool_alloc(pool, 2 * MIB, 16, 0);
    fill(p, 2 * MIB);
    for (size_t size = 3 * MIB; size < 200 * MIB; size = size * 2 + 12345) {
        p = quarry_pool_resize(pool, p, QUARRY_SIZE_UNKNOWN, size, 16, 0);
        CHECK(p);
        filled(p, 2 * MIB);
        p[size - 1] = 1;
        CHECK_EQ(held(pool), figures(pool).mapped_bytes);
    }
    p = quarry_pool_resize(pool, p, QUARRY_SIZE_UNKNOWN, MIB, 16, 0);
    filled(p, MIB);
    CHECK_EQ(figures(pool).mapped_bytes, 3 * MIB);
    CHECK_GE(figures(pool).resized_in_place, 7);
    p = quarry_pool_resize(pool, p, MIB, 1000, 16, 0);  // into a region
    filled(p, 1000);
    CHECK_EQ(figures(pool).mapped_blocks, 1);
    p = quarry_pool_resize(pool, p, 1000, MIB, 16, 0);  // and out of it
    filled(p, 1000);
    quarry_pool_free(pool, p, MIB);
    quarry_pool_free(pool, in_the_way, 2 * MIB);
    CHECK_EQ(figures(pool).mapped_bytes, 0);
    end(pool);
}

TEST(resize_from_and_to_nothing) {
    quarry_pool_t *pool = make(1);
    char *p = quarry_pool_resize(pool, NULL, 0, 100, 16, 0);
    CHECK(p);
    strcpy(p, "here");
    p = quarry_pool_resize(pool, p, 100, 0, 16, 0);  // a block of size 0, as alloc gives
    CHECK(p);
    p = quarry_pool_resize(pool, p, 0, 50, 16, QUARRY_POOL_ZERO);
    for (int i = 0; i < 50; i++) CHECK_EQ(p[i], 0);
    quarry_pool_free(pool, p, 50);
    quarry_pool_free(pool, NULL, 0);
    end(pool);
}

// ---- memory goes back
// -------------------------------------------------------------------------------------------------

TEST(everything_joins_and_32_mib_are_kept) {
    quarry_pool_t *pool = make(2);
    if (!plain(pool)) TEST_SKIP("needs pools:off: a checked pool keeps blocks in quarantine");
    enum { BLOCKS = 3000 };
    static char *p[BLOCKS];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            p[i] = quarry_pool_alloc(pool, 60000, 16, 0);
            CHECK(p[i]);
            p[i][0] = 1;
        }
        CHECK_GE(figures(pool).region_bytes, 160 * MIB);
        for (int i = 0; i < BLOCKS; i++) quarry_pool_free(pool, p[(size_t)i * 7919 % BLOCKS], 60000);
        quarry_pow2_stats_t s = figures(pool);
        CHECK_EQ(s.regions, 1);
        CHECK_EQ(s.region_bytes, 32 * MIB);
        CHECK_EQ(s.free_bytes, 32 * MIB);
        CHECK_EQ(held(pool), 32 * MIB);
        CHECK_EQ(quarry_pool_check(pool), 0);
    }
    CHECK_EQ(quarry_pow2_trim(pool), 32 * MIB);
    CHECK_EQ(held(pool), 0);
    CHECK_EQ(quarry_pow2_trim(pool), 0);
    end(pool);
}

TEST(pages_of_free_blocks_go_back) {
    quarry_pool_t *pool = make(1);
    if (!plain(pool)) TEST_SKIP("needs pools:off: a checked pool keeps blocks in quarantine");
    enum { BLOCKS = 1200 };
    static char *p[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) memset(p[i] = quarry_pool_alloc(pool, 64 * KIB, 16, 0), 1, 64 * KIB);
    for (int i = 0; i < BLOCKS; i++)
        if (i % 50) quarry_pool_free(pool, p[i], 64 * KIB);  // no region is empty
    quarry_pow2_stats_t s = figures(pool);
    CHECK_GE(s.regions, 3);
    CHECK_GE(s.purged_bytes, 32 * MIB);
    CHECK_LE(s.dirty_bytes, 33 * MIB);
    CHECK_EQ(quarry_pool_check(pool), 0);
    for (int i = 0; i < BLOCKS; i += 50)
        for (size_t k = 0; k < 64 * KIB; k++)
            if (p[i][k] != 1) TEST_FAIL("a used block was purged");
    CHECK_GE(quarry_pow2_trim(pool), s.dirty_bytes);
    CHECK_EQ(figures(pool).dirty_bytes, 0);
    unsigned char *q = quarry_pool_alloc(pool, 512 * KIB, 16, QUARRY_POOL_ZERO);
    for (size_t k = 0; k < 512 * KIB; k++) CHECK_EQ(q[k], 0);
    end(pool);
}

TEST(the_threshold_is_an_option) {
    quarry_pool_t *pool =
        quarry_pow2_create(&(quarry_pow2_options_t){.partitions = 1, .region_bytes = MIB, .give_back_bytes = 1});
    if (!plain(pool)) TEST_SKIP("needs pools:off: a checked pool keeps blocks in quarantine");
    void *p = quarry_pool_alloc(pool, 1000, 16, 0);
    CHECK_EQ(held(pool), MIB);
    quarry_pool_free(pool, p, 1000);
    CHECK_EQ(held(pool), 0);
    end(pool);
}

TEST(freed_mappings_are_kept) {
    quarry_pool_t *pool = make(1);
    if (!plain(pool)) TEST_SKIP("needs pools:off: a checked pool keeps blocks in quarantine");
    char *p = quarry_pool_alloc(pool, 4 * MIB, 16, 0), *in_the_way = quarry_pool_alloc(pool, 4 * MIB, 16, 0);
    fill(p, 4 * MIB);
    quarry_pool_free(pool, p, 4 * MIB);
    CHECK_EQ(figures(pool).kept_bytes, 4 * MIB);
    CHECK_EQ(held(pool), 8 * MIB);
    CHECK_EQ(stats_of(pool).used_bytes, 4 * MIB);
    uint64_t gets = stats_of(pool).chunk_gets;

    char *q = quarry_pool_alloc(pool, 3 * MIB, 16, 0);  // a piece of it, with what it held
    CHECK_PTR_EQ(q, p);
    filled(q, 3 * MIB);
    CHECK_EQ(figures(pool).kept_bytes, MIB);
    char *r = quarry_pool_alloc(pool, 6 * MIB, 16, 0);  // the rest, and more pages behind it
    for (size_t i = 0; i < MIB; i += 1000) CHECK_EQ((unsigned char)r[i], bytes_at(0, i + 3 * MIB));
    memset(r, 1, 6 * MIB);
    CHECK_EQ(figures(pool).kept_bytes, 0);
    CHECK_EQ(stats_of(pool).chunk_gets, gets);
    CHECK_EQ(held(pool), 13 * MIB);

    r = quarry_pool_resize(pool, r, 6 * MIB, 2 * MIB, 16, 0);  // what it no longer needs
    CHECK_EQ(figures(pool).kept_bytes, 4 * MIB);
    CHECK_EQ(quarry_pool_check(pool), 0);
    // of the kernel, which has zeros for nothing
    unsigned char *zero = quarry_pool_alloc(pool, 4 * MIB, 16, QUARRY_POOL_ZERO);
    CHECK_EQ(bytes_nonzero(zero, 4 * MIB), 4 * MIB);
    CHECK_EQ(stats_of(pool).chunk_gets, gets + 1);
    CHECK_EQ(figures(pool).kept_bytes, 4 * MIB);
    CHECK_EQ(quarry_pow2_trim(pool), 4 * MIB);
    CHECK_EQ(figures(pool).kept_bytes, 0);
    quarry_pool_free(pool, in_the_way, 4 * MIB);
    CHECK_EQ(quarry_pool_check(pool), 0);
    end(pool);
}

TEST(what_is_kept_has_a_limit) {
    quarry_pool_t *pool = make(1);
    if (!plain(pool)) TEST_SKIP("needs pools:off: a checked pool keeps blocks in quarantine");
    enum { BLOCKS = 40 };
    char *p[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) CHECK(p[i] = quarry_pool_alloc(pool, 3 * MIB, 16, 0));
    for (int i = 0; i < BLOCKS; i++) {
        quarry_pool_free(pool, p[i], 3 * MIB);
        CHECK_LE(figures(pool).kept_bytes, 32 * MIB);
        CHECK_EQ(held(pool), figures(pool).kept_bytes + figures(pool).mapped_bytes);
    }
    CHECK_EQ(figures(pool).kept_bytes, 30 * MIB);
    char *large = quarry_pool_alloc(pool, 40 * MIB, 16, 0);  // grown out of one of them
    quarry_pool_free(pool, large, 40 * MIB);
    CHECK_LE(figures(pool).kept_bytes, 30 * MIB);  // more than is kept: gone at once
    for (int i = 0; i < BLOCKS; i++) CHECK(p[i] = quarry_pool_alloc(pool, 600 * KIB, 16, 0));
    for (int i = 0; i < BLOCKS; i++) {
        quarry_pool_free(pool, p[i], 600 * KIB);
        CHECK_EQ(quarry_pool_check(pool), 0);  // and no more than so many pieces
    }
    CHECK_GE(figures(pool).kept_bytes, 15 * 600 * KIB);
    end(pool);

    // What is kept does not stand in the way of what is needed.
    pool = quarry_pow2_create(&(quarry_pow2_options_t){.pool.limit = 20 * MIB, .partitions = 1});
    char *a = quarry_pool_alloc(pool, 10 * MIB, 16, 0), *b = quarry_pool_alloc(pool, 9 * MIB, 16, 0), *small;
    quarry_pool_free(pool, a, 10 * MIB);
    CHECK_EQ(figures(pool).kept_bytes, 10 * MIB);
    CHECK(small = quarry_pool_alloc(pool, 512 * KIB, 16, 0));  // a small region: there is room for that
    quarry_pool_free(pool, small, 512 * KIB);
    quarry_pow2_trim(pool);
    a = quarry_pool_alloc(pool, 10 * MIB, 16, 0);
    CHECK(a);
    quarry_pool_free(pool, a, 10 * MIB);
    // what is kept does not do, and is charged: it goes
    CHECK(quarry_pool_alloc(pool, 10 * MIB, 16, QUARRY_POOL_ZERO));
    CHECK_EQ(figures(pool).kept_bytes, 0);
    quarry_pool_free(pool, b, 9 * MIB);
    CHECK_EQ(figures(pool).kept_bytes, 9 * MIB);
    CHECK(quarry_pool_alloc(pool, 16 * KIB, 16, 0));  // for a region as well
    CHECK(quarry_pool_alloc(pool, 512 * KIB, 16, 0));
    end(pool);
}

TEST(small_blocks_in_many_regions) {
    quarry_pool_t *pool = quarry_pow2_create(&(quarry_pow2_options_t){.partitions = 3, .region_bytes = 64 * KIB});
    void *first = NULL;
    for (int i = 0; i < 9000; i++) {
        void *p = quarry_pool_alloc(pool, 1000, 16, 0);
        CHECK(p);
        *(void **)p = first;
        first = p;
    }
    if (plain(pool)) CHECK_GE(figures(pool).regions, 140);  // the table of regions grew
    CHECK_EQ(quarry_pool_check(pool), 0);
    while (first) {
        void *next = *(void **)first;
        quarry_pool_free(pool, first, 1000);
        first = next;
    }
    if (plain(pool)) CHECK_EQ(figures(pool).free_bytes, figures(pool).region_bytes);
    end(pool);
}

TEST(limits_and_parents) {
    quarry_pool_t *pool = quarry_pow2_create(&(quarry_pow2_options_t){.pool.limit = 300 * KIB});
    if (pool->mode & QY_MODE_PASS) TEST_SKIP("needs pools:off: blocks of pass-through pools come from malloc");
    size_t got = 0;
    while (quarry_pool_alloc(pool, 1000, 16, 0)) got += 1024;
    CHECK_EQ(errno, ENOMEM);
    CHECK_GE(got, 100 * KIB);  // smaller regions where no whole one fits
    CHECK_LE(held(pool), 300 * KIB);
    end(pool);

    static alignas(64) char buffer[4 * MIB];
    quarry_pool_t *parent = quarry_tlsf_create(&(quarry_tlsf_options_t){
        .buffer = buffer, .buffer_bytes = sizeof buffer, .flags = QUARRY_TLSF_FIXED | QUARRY_TLSF_LOCK});
    pool = quarry_pow2_create(&(quarry_pow2_options_t){.pool.parent = parent, .map_bytes = 64 * KIB});
    char *p = quarry_pool_alloc(pool, 100, 16, QUARRY_POOL_ZERO),
         *q = quarry_pool_alloc(pool, 100 * KIB, 16, QUARRY_POOL_ZERO);
    CHECK(p >= buffer && p < buffer + sizeof buffer && q >= buffer && q < buffer + sizeof buffer);
    fill(q, 100 * KIB);
    q = quarry_pool_resize(pool, q, 100 * KIB, 120 * KIB, 16, 0);
    filled(q, 100 * KIB);
    CHECK_EQ(quarry_pool_check(parent), 0);
    quarry_pool_free(pool, p, 100);
    quarry_pool_free(pool, q, 120 * KIB);
    end(pool);
    if (plain(parent)) CHECK_EQ(stats_of(parent).used_bytes, 0);
    end(parent);
}

// ---- figures
// -----------------------------------------------------------------------------------------------------------

TEST(a_quarter_is_lost_to_rounding) {
    quarry_pool_t *pool = make(1);
    if (!plain(pool)) TEST_SKIP("needs pools:off: the observer adds to sizes");
    uint64_t random = test_seed;
    for (int i = 0; i < 100000; i++) {
        size_t size = 1 + test_random(&random) % (256 * KIB);
        quarry_pool_free(pool, quarry_pool_alloc(pool, size, 16, 0), size);
    }
    quarry_pow2_stats_t s = figures(pool);
    double waste = 1 - (double)s.requested_bytes / (double)s.rounded_bytes;
    printf("waste %.1f %%\n", waste * 100);
    CHECK(waste > 0.23 && waste < 0.27);
    CHECK_EQ(stats_of(pool).allocs, 100000);
    CHECK_EQ(stats_of(pool).frees, 100000);
    CHECK_EQ(stats_of(pool).used_bytes, 0);
    end(pool);
}

typedef struct printed {
    quarry_pool_t *pool;
    const void *ptr;
} printed_t;
static void print_block(void *arg) {
    const printed_t *a = arg;
    int r = quarry_pow2_print_block(a->pool, a->ptr, 2);
    _exit(r ? 1 : 0);
}
static void print_free(void *arg) {
    if (quarry_pow2_print_free(((printed_t *)arg)->pool, 2)) _exit(1);
}

TEST(print) {
    quarry_pool_t *pool = make(1);
    if (!plain(pool)) TEST_SKIP("needs pools:off: the observer adds to sizes");
    char *p = quarry_pool_alloc(pool, 30, 16, 0), *large = quarry_pool_alloc(pool, 3 * MIB, 16, 0);
    char expected[200];
    captured_t c = capture(print_block, &(printed_t){pool, p + 5});
    snprintf(expected, sizeof expected, "block %p size 32 used, buddy %p free, region %p size 33554432 partition 0\n",
        (void *)p, (void *)(p + 32), (void *)p);
    CHECK_STR_EQ(c.text, expected);
    c = capture(print_block, &(printed_t){pool, p + 100});
    CHECK(strstr(c.text, " size 64 free, buddy ") && strstr(c.text, " split, "));
    c = capture(print_block, &(printed_t){pool, large + 5000});
    snprintf(expected, sizeof expected, "block %p size 3145728 mapped\n", (void *)large);
    CHECK_STR_EQ(c.text, expected);
    c = capture(print_block, &(printed_t){pool, expected});
    CHECK(c.exit_code == 1 && strstr(c.text, "is no block of \"test\""));
    c = capture(print_free, &(printed_t){pool, NULL});
    CHECK_EQ(c.exit_code, 0);
    CHECK(strstr(c.text, "[heap size 32768 KiB, mapped size 3072 KiB, free 32767 KiB, freelist {\n"));
    for (size_t bytes = 32; bytes < 32 * MIB; bytes *= 2) {
        snprintf(expected, sizeof expected, "  1 of %zu bytes: %p\n", bytes, (void *)(p + bytes));
        CHECK(strstr(c.text, expected));
    }
    end(pool);
}

// ---- partitions
// --------------------------------------------------------------------------------------------------------

#define THREADS 8
static struct {
    quarry_pool_t *pool;
    pthread_barrier_t barrier;
    _Atomic(unsigned char *) slots[512];
} shared;

static void *allocates(void *arg) {
    void **list = arg;
    pthread_barrier_wait(&shared.barrier);
    for (int i = 0; i < 2000; i++) {
        list[i] = quarry_pool_alloc(shared.pool, 1000, 16, 0);
        CHECK(list[i]);
        memset(list[i], i, 1000);
    }
    return NULL;
}

// What threads leave behind in their partitions is found by others before the pool grows, and joins as well.
TEST(nothing_is_stranded) {
    static void *lists[THREADS][2000];
    shared.pool = quarry_pow2_create(&(quarry_pow2_options_t){.partitions = 8, .region_bytes = MIB});
    if (!plain(shared.pool)) TEST_SKIP("needs pools:off: a checked pool keeps blocks in quarantine");
    pthread_t threads[THREADS];
    pthread_barrier_init(&shared.barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, allocates, lists[i]);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    unsigned used = 0;
    for (unsigned i = 0; i < 8; i++) {
        quarry_pow2_partition_stats_t s;
        CHECK_EQ(quarry_pow2_partition_stats(shared.pool, i, &s), 0);
        used += s.regions != 0;
    }
    quarry_pow2_partition_stats_t none;
    CHECK_EQ(quarry_pow2_partition_stats(shared.pool, 8, &none), -1);
    CHECK_GE(used, 2);
    // This thread frees half of all, every other block, and gets just as many without a new region.
    for (int t = 0; t < THREADS; t++)
        for (int i = 0; i < 2000; i += 2) quarry_pool_free(shared.pool, lists[t][i], 1000);
    size_t regions = figures(shared.pool).regions;
    for (int t = 0; t < THREADS; t++)
        for (int i = 0; i < 2000; i += 2) CHECK((lists[t][i] = quarry_pool_alloc(shared.pool, 1000, 16, 0)) != NULL);
    CHECK_EQ(figures(shared.pool).regions, regions);
    CHECK_GE(figures(shared.pool).steals, 1000);
    CHECK_EQ(quarry_pool_check(shared.pool), 0);
    for (int t = 0; t < THREADS; t++)
        for (int i = 0; i < 2000; i++) quarry_pool_free(shared.pool, lists[t][i], 1000);
    // The check has compared buddies: no two free ones are left apart.
    CHECK_EQ(quarry_pool_check(shared.pool), 0);
    CHECK_EQ(figures(shared.pool).free_bytes, figures(shared.pool).region_bytes);
    quarry_pow2_trim(shared.pool);
    CHECK_EQ(figures(shared.pool).regions, 0);
    end(shared.pool);
}

static int exchanges_each(void) { return plain(shared.pool) ? SLOW ? 3000 : 20000 : 1500; }

static void *exchanges(void *arg) {
    uint64_t random = test_seed + (uintptr_t)arg * 7919;
    for (int i = 0, n = exchanges_each(); i < n; i++) {
        size_t size = 16 + test_random(&random) % ((size_t)64 << test_random(&random) % 9),
               slot = test_random(&random) % 512;
        if (i % 500 == 0) size += MIB;
        unsigned char *p = quarry_pool_alloc(shared.pool, size, 16, i % 3 ? QUARRY_POOL_ZERO : 0);
        CHECK(p);
        for (size_t k = 8; i % 3 && k < size; k += 31) CHECK_EQ(p[k], 0);
        memset(p, (int)slot, size);
        memcpy(p, &size, sizeof size);
        if (test_random(&random) % 4 == 0) {
            size_t other = 16 + test_random(&random) % 20000, same = size < other ? size : other;
            p = quarry_pool_resize(shared.pool, p, size, other, 16, 0);
            CHECK(p);
            for (size_t k = 8; k < same; k++) CHECK_EQ(p[k], (unsigned char)slot);
            memset(p, (int)slot, other);
            memcpy(p, &other, sizeof other);
        }
        p = atomic_exchange(&shared.slots[slot], p);
        if (!p) continue;
        memcpy(&size, p, sizeof size);
        CHECK_EQ(p[8], (unsigned char)slot);
        CHECK_EQ(p[size - 1], (unsigned char)slot);
        quarry_pool_free(shared.pool, p, size);
        if (i % 4000 == 0) CHECK_EQ(quarry_pool_check(shared.pool), 0);
        if (i % 5000 == 0) quarry_pow2_trim(shared.pool);
    }
    return NULL;
}

static void child_uses_it(void *arg) {
    (void)arg;
    for (int i = 0; i < 200; i++) {
        void *p = quarry_pool_alloc(shared.pool, (size_t)i * 100, 16, 0);
        CHECK(p);
        quarry_pool_free(shared.pool, p, QUARRY_SIZE_UNKNOWN);
    }
    CHECK_EQ(quarry_pool_check(shared.pool), 0);
}

TEST(threads_and_forks) {
    for (unsigned partitions = 1; partitions <= 4; partitions += 3) {
        shared.pool = quarry_pow2_create(
            &(quarry_pow2_options_t){.partitions = partitions, .region_bytes = MIB, .give_back_bytes = 2 * MIB});
        pthread_t threads[4];
        for (uintptr_t i = 0; i < 4; i++) CHECK_EQ(pthread_create(&threads[i], NULL, exchanges, (void *)i), 0);
        // AddressSanitizer's own malloc, which pass-through calls, does not survive a fork with threads.
        bool may_fork = !(QY_ASAN && (shared.pool->mode & QY_MODE_PASS));
        for (int i = 0; may_fork && i < (SLOW ? 4 : 30); i++) run_apart(child_uses_it, NULL);
        for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
        for (int i = 0; i < 512; i++)
            quarry_pool_free(shared.pool, atomic_exchange(&shared.slots[i], NULL), QUARRY_SIZE_UNKNOWN);
        CHECK_EQ(stats_of(shared.pool).allocs, stats_of(shared.pool).frees);
        if (plain(shared.pool)) CHECK_EQ(stats_of(shared.pool).used_bytes, 0);
        if (plain(shared.pool)) CHECK_EQ(figures(shared.pool).free_bytes, figures(shared.pool).region_bytes);
        uint64_t takes = 0, contended = 0;
        for (unsigned i = 0; i < partitions; i++) {
            quarry_pow2_partition_stats_t s;
            quarry_pow2_partition_stats(shared.pool, i, &s);
            takes += s.takes;
            contended += s.contended;
        }
        printf("%u partitions: %llu locks taken, %llu contended\n", partitions, (unsigned long long)takes,
            (unsigned long long)contended);
        if (plain(shared.pool)) CHECK_GE(takes, 5 * exchanges_each());
        end(shared.pool);
    }
}

// Another thread asks while a region comes with its block, and goes with it.
static _Atomic bool come_and_gone;
static void *comes_and_goes(void *unused) {
    for (int i = 0; i < (SLOW ? 2000 : 20000); i++)
        quarry_pool_free(shared.pool, quarry_pool_alloc(shared.pool, 32 * KIB, 16, 0), 32 * KIB);
    come_and_gone = true;
    return unused;
}
TEST(figures_are_exact_for_others) {
    shared.pool =
        quarry_pow2_create(&(quarry_pow2_options_t){.partitions = 1, .region_bytes = 64 * KIB, .give_back_bytes = 1});
    if (!plain(shared.pool)) TEST_SKIP("needs pools:off: a checked pool keeps blocks in quarantine");
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, comes_and_goes, NULL), 0);
    while (!come_and_gone) {
        quarry_pool_stats_t s = stats_of(shared.pool);
        CHECK(s.used_bytes == 0 || s.used_bytes == 32 * KIB);
        CHECK_LE(s.frees, s.allocs);
        quarry_pow2_stats_t f = figures(shared.pool);
        CHECK_LE(f.free_bytes, f.region_bytes);
    }
    pthread_join(thread, NULL);
    CHECK_EQ(figures(shared.pool).regions, 0);
    end(shared.pool);
}

// Freed mappings go from thread to thread, in pieces: no byte may be in two blocks.
static void *exchanges_large(void *arg) {
    uint64_t random = test_seed + (uintptr_t)arg * 7919;
    for (int i = 0, n = plain(shared.pool) ? SLOW ? 200 : 500 : 50; i < n; i++) {
        size_t size = 600 * KIB + test_random(&random) % (2 * MIB),
               other = 600 * KIB + test_random(&random) % (2 * MIB), slot = test_random(&random) % 16;
        unsigned char *p = quarry_pool_alloc(shared.pool, size, 16, i % 3 ? 0 : QUARRY_POOL_ZERO),
                      tag = (unsigned char)test_random(&random);
        CHECK(p);
        for (size_t k = 0; i % 3 == 0 && k < size; k += 4096) CHECK_EQ(p[k], 0);
        for (size_t k = 0; k < size; k += 4096) p[k] = tag;
        if (i % 2) {
            CHECK(p = quarry_pool_resize(shared.pool, p, size, other, 16, 0));
            for (size_t k = 0; k < size && k < other; k += 4096) CHECK_EQ(p[k], tag);
            for (size_t k = 0; k < other; k += 4096) p[k] = tag;
            size = other;
        }
        memcpy(p + 1, &size, sizeof size);
        p = atomic_exchange(&shared.slots[slot], p);
        if (!p) continue;
        memcpy(&size, p + 1, sizeof size);
        for (size_t k = 0; k < size; k += 4096) CHECK_EQ(p[k], p[0]);
        quarry_pool_free(shared.pool, p, size);
    }
    return NULL;
}

TEST(large_blocks_among_threads) {
    shared.pool = quarry_pow2_create(&(quarry_pow2_options_t){.give_back_bytes = 8 * MIB});
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) CHECK_EQ(pthread_create(&threads[i], NULL, exchanges_large, (void *)i), 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 16; i++)
        quarry_pool_free(shared.pool, atomic_exchange(&shared.slots[i], NULL), QUARRY_SIZE_UNKNOWN);
    if (plain(shared.pool)) CHECK_LE(held(shared.pool), 8 * MIB);
    end(shared.pool);
}

// More threads than processors, one lock: whoever holds it may be off its processor, and all get on nevertheless.
TEST(contention_makes_progress) {
    shared.pool = make(1);
    enum { MANY = SLOW ? 8 : 24 };
    pthread_t threads[MANY];
    for (uintptr_t i = 0; i < MANY; i++) CHECK_EQ(pthread_create(&threads[i], NULL, exchanges, (void *)i), 0);
    for (int i = 0; i < MANY; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 512; i++)
        quarry_pool_free(shared.pool, atomic_exchange(&shared.slots[i], NULL), QUARRY_SIZE_UNKNOWN);
    end(shared.pool);
}

// ---- against a model ------------------------------------------------------------------------------------

typedef struct model_block {
    unsigned char *p;
    size_t size;
    uint64_t key;
} model_block_t;

static void model_step(quarry_pool_t *pool, model_block_t *b, uint64_t *random) {
    size_t size = test_random(random) % ((size_t)32 << test_random(random) % 14),
           alignment = (size_t)1 << test_random(random) % 8;
    unsigned flags = test_random(random) % 2 ? QUARRY_POOL_ZERO : 0;
    if (!b->p || test_random(random) % 3 == 0) {
        unsigned char *p = quarry_pool_resize(pool, b->p, b->size, size, alignment, flags);
        CHECK(p);
        CHECK_EQ((uintptr_t)p & (alignment - 1), 0);
        size_t kept = !b->p ? 0 : b->size < size ? b->size
                                                 : size;
        size_t changed = bytes_differ(p, kept, b->key);
        if (changed < kept) TEST_FAIL("byte %zu changed when %zu became %zu", changed, b->size, size);
        if (flags && size > kept && bytes_nonzero(p + kept, size - kept) < size - kept)
            TEST_FAIL("not zero where %zu became %zu", b->size, size);
        *b = (model_block_t){p, size, test_random(random)};
        bytes_fill(p, size, b->key);
    } else {
        size_t changed = bytes_differ(b->p, b->size, b->key);
        if (changed < b->size) TEST_FAIL("byte %zu of %zu changed", changed, b->size);
        quarry_pool_free(pool, b->p, QUARRY_SIZE_UNKNOWN);
        *b = (model_block_t){NULL, 0, 0};
    }
}

TEST(random_against_a_model) {
    static model_block_t blocks[200];
    for (int kind = 0; kind < 3; kind++) {
        quarry_pow2_options_t o = {.partitions = kind == 2 ? 5 : 1,
            .region_bytes = kind ? 64 * KIB : 0,
            .give_back_bytes = kind ? 128 * KIB : 0,
            .map_bytes = kind == 2 ? 4096 : 0};
        quarry_pool_t *pool = quarry_pow2_create(&o);
        uint64_t random = test_seed + (uint64_t)kind;
        memset(blocks, 0, sizeof blocks);
        for (int i = 0; i < (SLOW ? 4000 : 30000); i++) {
            model_step(pool, &blocks[test_random(&random) % 200], &random);
            if (i % (kind ? 20 : 500) == 0) CHECK_EQ(quarry_pool_check(pool), 0);
        }
        for (int i = 0; i < 200; i++) quarry_pool_free(pool, blocks[i].p, blocks[i].size);
        if (plain(pool)) CHECK_EQ(figures(pool).free_bytes, figures(pool).region_bytes);
        end(pool);
    }
}

// ---- refusals of the kernel
// -------------------------------------------------------------------------------------------------

static bool workload(void) {
    quarry_pool_t *pool = quarry_pow2_create(&(quarry_pow2_options_t){
        .partitions = 2, .region_bytes = 256 * KIB, .give_back_bytes = 300 * KIB, .map_bytes = 128 * KIB});
    if (!pool) {
        CHECK_EQ(errno, ENOMEM);
        return false;
    }
    char *p[60];
    size_t size[60];
    bool whole = true;
    for (size_t i = 0; i < 60; i++) {
        size[i] = i % 7 ? i * i * 20 : i * 10000;
        p[i] = quarry_pool_alloc(pool, size[i], 16, 0);
        if (!p[i]) CHECK_EQ(errno, ENOMEM);
        whole &= p[i] != NULL;
        if (p[i]) memset(p[i], (int)i, size[i]);
    }
    CHECK_EQ(quarry_pool_check(pool), 0);
    for (size_t i = 0; i < 60; i += 3) {
        size_t other = i % 2 ? size[i] / 2 : size[i] * 3;
        char *q = p[i] ? quarry_pool_resize(pool, p[i], size[i], other, 16, 0) : NULL;
        whole &= q != NULL;
        for (size_t k = 0; p[i] && k < size[i] && (!q || k < other); k++) CHECK_EQ((q ? q : p[i])[k], (char)i);
        if (q) p[i] = q, size[i] = other;
    }
    CHECK_EQ(quarry_pool_check(pool), 0);
    for (size_t i = 0; i < 60; i++) quarry_pool_free(pool, p[i], size[i]);
    CHECK_EQ(quarry_pool_check(pool), 0);
    quarry_pow2_trim(pool);
    quarry_pool_destroy(pool);
    return whole;
}

TEST(each_refusal_in_turn) {
    static const uint32_t masks[] = {1u << QY_OS_MAP, 1u << QY_OS_RESERVE, 1u << QY_OS_RESIZE, 1u << QY_OS_MOVE,
        1u << QY_OS_UNMAP | 1u << QY_OS_PURGE, ~0u};
    CHECK(workload());
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++) {
        for (int persist = 0; persist < 2; persist++) {
            for (uint64_t n = 1;; n++) {
                quarry_os_fault(n, persist, masks[m]);
                bool whole = workload(), hit = quarry_os_fault_hits() != 0;
                quarry_os_fault(0, 0, 0);
                CHECK(whole || hit);
                if (!hit) break;
                CHECK_LT(n, 1000);
            }
        }
    }
    CHECK(workload());
}

TEST_MAIN()
