// SPDX-License-Identifier: MIT
// What a stack is as a pool: all blocks in one frame; and a thread's stack, in a scope.
#include <quarry/scope.h>

#include "kinds.h"

static quarry_stack_frame_t frame;

static quarry_pool_t *create(const quarry_pool_options_t *options) {
    return quarry_stack_create(&(quarry_stack_options_t){.pool = options ? *options : (quarry_pool_options_t){0}});
}
static void begin(quarry_pool_t *pool) { quarry_stack_push(pool, &frame); }
static void end(quarry_pool_t *pool) { quarry_stack_pop(pool, &frame); }
POOL_KIND(stack, .create = create, .begin = begin, .end = end)
