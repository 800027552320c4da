// SPDX-License-Identifier: MIT
// pool_test.h: what the tests of single kinds ask of every pool.
#ifndef QUARRY_TESTS_POOL_TEST_H
#define QUARRY_TESTS_POOL_TEST_H

#include <quarry/pool.h>
#include <stdbool.h>

#include "harness.h"

__attribute__((unused)) static quarry_pool_stats_t stats_of(quarry_pool_t *pool) {
    quarry_pool_stats_t s;
    quarry_pool_stats(pool, &s);
    return s;
}
__attribute__((unused)) static size_t held(quarry_pool_t *pool) { return stats_of(pool).held_bytes; }

// Its invariants hold, and it ends.
__attribute__((unused)) static void end(quarry_pool_t *pool) {
    CHECK_EQ(quarry_pool_check(pool), 0);
    quarry_pool_destroy(pool);
}

static int pool_is(quarry_pool_t *pool, void *arg) { return pool == arg; }
__attribute__((unused)) static bool exists(quarry_pool_t *pool) { return quarry_pools_walk(pool_is, pool); }

// Without checking and without a log: what it tells of itself is about the program's blocks alone.
__attribute__((unused)) static bool plain(const quarry_pool_t *pool) { return pool->mode == 0; }

#endif
