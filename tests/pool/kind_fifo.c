// SPDX-License-Identifier: MIT
// What a FIFO is as a pool.
#include <quarry/fifo.h>

#include "kinds.h"

static quarry_pool_t *create(const quarry_pool_options_t *options) {
    return quarry_fifo_create(&(quarry_fifo_options_t){.pool = options ? *options : (quarry_pool_options_t){0}});
}
POOL_KIND(fifo, .create = create)
