// SPDX-License-Identifier: MIT
// test_pow2_fresh.c: what a pow2 pool knows of memory that nobody has used: it is not touched for zeros.
#include <quarry/pow2.h>

#include "bytes.h"
#include "os/os.h"
#include "pool/pool.h"
#include "pool_test.h"
#include "resident.h"

#define KIB ((size_t)1 << 10)

static quarry_pool_t *make(unsigned partitions) {
    quarry_pool_t *pool = quarry_pow2_create(&(quarry_pow2_options_t){.partitions = partitions});
    CHECK(pool && plain(pool));
    return pool;
}
static quarry_pow2_stats_t figures(quarry_pool_t *pool) {
    quarry_pow2_stats_t s;
    quarry_pow2_stats(pool, &s);
    return s;
}

// Pages behind `count` blocks of zeros, before they are read; and they read as zero.
static size_t zeros(quarry_pool_t *pool, unsigned char **p, int count, size_t size) {
    size_t pages = 0;
    for (int i = 0; i < count; i++) {
        CHECK((p[i] = quarry_pool_alloc(pool, size, 16, QUARRY_POOL_ZERO)));
        pages += resident_pages(p[i], size);
    }
    for (int i = 0; i < count; i++) CHECK_EQ(bytes_nonzero(p[i], size), size);
    return pages;
}

// What was used of a region is its beginning, up to a power of two. Behind it memory stays fresh, whatever was freed.
TEST(what_nobody_used_stays_fresh) {
    enum { BLOCKS = 100,
        SIZE = 256 * KIB };
    static unsigned char *p[BLOCKS], *used[1000];
    for (size_t n = 1; n <= 1000; n *= 10) {
        quarry_pool_t *pool = make(1);
        uint64_t random = test_seed;
        size_t sum = 0;
        for (size_t i = 0; i < n; i++) {
            size_t size = 1 + test_random(&random) % 5000;
            memset(used[i] = quarry_pool_alloc(pool, size, 16, 0), 0xEE, size);
            sum += quarry_pool_usable(pool, used[i]);
        }
        for (size_t i = n, k; i; used[k] = used[--i])
            quarry_pool_free(pool, used[k = test_random(&random) % i], QUARRY_SIZE_UNKNOWN);
        size_t dirty = figures(pool).dirty_bytes, pages = zeros(pool, p, BLOCKS, SIZE), page = qy_os_page_size();
        printf("  %zu bytes used, %zu dirty, %zu pages for zeros\n", sum, dirty, pages);
        CHECK_LE(dirty, 4 * sum);
        CHECK_LE(pages, 4 * sum / page + 2 * BLOCKS);
        // Halves that are split off again and come back: as fresh as they were.
        for (int i = 0; i < BLOCKS; i += 2) quarry_pool_free(pool, p[i], SIZE);
        CHECK_EQ(quarry_pool_check(pool), 0);
        end(pool);
    }
}

// Blocks that grow where they are take fresh halves as they are, on the right; and are cleared where they moved left.
TEST(growth_takes_fresh_halves) {
    quarry_pool_t *pool = make(1);
    unsigned char *p = quarry_pool_alloc(pool, 100, 16, 0), *q = p;
    for (size_t old = 100, size = 400; size <= 512 * KIB; old = size, size *= 2) {
        memset(p, 0xEE, old);
        CHECK_PTR_EQ(p = quarry_pool_resize(pool, p, old, size, 16, QUARRY_POOL_ZERO), q);
        CHECK_LE(resident_pages(p, size), old / qy_os_page_size() + 16);
        CHECK_EQ(bytes_nonzero(p + old, size - old), size - old);
    }
    quarry_pool_free(pool, p, 512 * KIB);
    CHECK_EQ(figures(pool).dirty_bytes, 512 * KIB);
    p = quarry_pool_alloc(pool, 128 * KIB, 16, 0);
    q = quarry_pool_alloc(pool, 128 * KIB, 16, QUARRY_POOL_ZERO);
    memset(q, 0xEE, 128 * KIB);
    quarry_pool_free(pool, p, 128 * KIB);
    CHECK_PTR_EQ(quarry_pool_resize(pool, q, 128 * KIB, 256 * KIB, 16, QUARRY_POOL_ZERO), p);
    CHECK_EQ(p[128 * KIB - 1], 0xEE);
    CHECK_EQ(bytes_nonzero(p + 128 * KIB, 128 * KIB), 128 * KIB);
    quarry_pool_free(pool, p, 256 * KIB);
    end(pool);
}

// Pages that were given back are fresh again, and only what was dirty is given back.
TEST(a_purge_makes_fresh) {
    static unsigned char *p[60];
    quarry_pool_t *pool = make(1);
    unsigned char *stays = quarry_pool_alloc(pool, 100, 16, 0);
    for (int i = 0; i < 60; i++) memset(p[i] = quarry_pool_alloc(pool, 200000, 16, 0), 0xEE, 200000);
    for (int i = 0; i < 60; i++) quarry_pool_free(pool, p[i], 200000);
    size_t dirty = figures(pool).dirty_bytes;
    CHECK_GE(dirty, 60 * 200000);
    CHECK_EQ(quarry_pow2_trim(pool), dirty);
    CHECK_EQ(figures(pool).dirty_bytes, 0);
    CHECK_LE(zeros(pool, p, 60, 200000), 3 * 60);
    for (int i = 0; i < 60; i++) quarry_pool_free(pool, p[i], 200000);
    quarry_pool_free(pool, stays, 100);
    end(pool);
}

TEST_MAIN()
