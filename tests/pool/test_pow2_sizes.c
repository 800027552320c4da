// SPDX-License-Identifier: MIT
// test_pow2_sizes.c: pow2 pools whose locks are divided between sizes, and how free memory is cut up.
#include <quarry/pow2.h>

#include "harness.h"

#define MIB ((size_t)1 << 20)

static quarry_pow2_stats_t figures(quarry_pool_t *pool) {
    quarry_pow2_stats_t s;
    quarry_pow2_stats(pool, &s);
    return s;
}

// Blocks of a power of two come from the partition of that power, and from its regions, until there is no memory for
// another region.
TEST(a_lock_for_each_size) {
    static void *blocks[4][500];
    static const size_t sizes[4] = {32, 64, 128, 4096};
    static const unsigned partitions[4] = {0, 1, 2, 7};
    const quarry_pow2_options_t options = {.flags = QUARRY_POW2_SIZE_LOCKS, .region_bytes = MIB};
    quarry_pool_t *pool = quarry_pow2_create(&options);
    CHECK(pool);
    CHECK_EQ(figures(pool).partitions, 15);  // 32 bytes to 512 KiB
    for (int s = 0; s < 4; s++)
        for (int i = 0; i < 100 + 100 * s; i++) {
            blocks[s][i] = quarry_pool_alloc(pool, sizes[s], 16, 0);
            CHECK(blocks[s][i]);
        }
    for (unsigned i = 0; i < 15; i++) {
        quarry_pow2_partition_stats_t q;
        uint64_t expected = 0;
        CHECK_EQ(quarry_pow2_partition_stats(pool, i, &q), 0);
        for (int s = 0; s < 4; s++)
            if (partitions[s] == i) expected = (uint64_t)(100 + 100 * s);
        CHECK_EQ(q.allocs, expected);
        CHECK_EQ(q.regions != 0, expected != 0);
    }
    CHECK_EQ(figures(pool).steals, 0);
    // Free memory is in pieces: of each region what is left of it.
    size_t orders[QUARRY_POW2_ORDERS], sum = 0, bytes = 0;
    CHECK_GT(quarry_pow2_fragments(pool, orders), 4);
    for (unsigned i = 0; i < QUARRY_POW2_ORDERS; i++) sum += orders[i], bytes += orders[i] << i;
    CHECK_EQ(sum, quarry_pow2_fragments(pool, orders));
    CHECK_EQ(bytes, figures(pool).free_bytes);
    for (int s = 0; s < 4; s++)
        for (int i = 0; i < 100 + 100 * s; i++) quarry_pool_free(pool, blocks[s][i], sizes[s]);
    CHECK_EQ(quarry_pow2_fragments(pool, orders), figures(pool).regions);  // all of each region, joined
    CHECK_EQ(orders[20], figures(pool).regions);
    CHECK_EQ(quarry_pool_check(pool), 0);
    quarry_pool_destroy(pool);
    // With room for one region all sizes share it.
    quarry_pow2_options_t small = options;
    small.pool.limit = MIB;
    pool = quarry_pow2_create(&small);
    CHECK(pool);
    for (int s = 0; s < 4; s++) CHECK(quarry_pool_alloc(pool, sizes[s], 16, 0));
    CHECK_EQ(figures(pool).regions, 1);
    CHECK_EQ(figures(pool).steals, 3);
    quarry_pool_destroy(pool);
    CHECK(!quarry_pow2_create(&(quarry_pow2_options_t){.flags = QUARRY_POW2_SIZE_LOCKS << 1}));
}

TEST_MAIN()
