// SPDX-License-Identifier: MIT
// What a ring is as a pool: all blocks in one frame.
#include <quarry/ring.h>

#include "kinds.h"

static quarry_pool_t *create(const quarry_pool_options_t *options) {
    return quarry_ring_create(&(quarry_ring_options_t){.pool = options ? *options : (quarry_pool_options_t){0}});
}
static void begin(quarry_pool_t *pool) { quarry_ring_newframe(pool); }
static void end(quarry_pool_t *pool) { quarry_ring_release(quarry_ring_seal(pool)); }
POOL_KIND(ring, .create = create, .begin = begin, .end = end)
