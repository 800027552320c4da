// SPDX-License-Identifier: MIT
// What a pow2 pool is as a pool: as it comes, and with small regions, so that several are needed.
#include <quarry/pow2.h>

#include "kinds.h"

#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define RUNNING_ON_VALGRIND 0
#endif

// A region lies at a multiple of its size, and memcheck's own malloc, asked for more than 16 MiB, ends the process.
static quarry_pool_t *create(const quarry_pool_options_t *options) {
    const int smaller = options && options->parent && RUNNING_ON_VALGRIND;
    return quarry_pow2_create(&(quarry_pow2_options_t){
        .pool = options ? *options : (quarry_pool_options_t){0}, .region_bytes = smaller ? (size_t)16 << 20 : 0});
}
POOL_KIND(pow2, .create = create)

static quarry_pool_t *create_small(const quarry_pool_options_t *options) {
    return quarry_pow2_create(&(quarry_pow2_options_t){.pool = options ? *options : (quarry_pool_options_t){0},
        .partitions = 3,
        .region_bytes = 65536,
        .map_bytes = 16384,
        .give_back_bytes = 65536});
}
POOL_KIND(pow2_small, .create = create_small)

static quarry_pool_t *create_by_size(const quarry_pool_options_t *options) {
    return quarry_pow2_create(&(quarry_pow2_options_t){.pool = options ? *options : (quarry_pool_options_t){0},
        .partitions = 4,
        .flags = QUARRY_POW2_SIZE_LOCKS,
        .region_bytes = 65536,
        .map_bytes = 16384,
        .give_back_bytes = 65536});
}
POOL_KIND(pow2_by_size, .create = create_by_size)
