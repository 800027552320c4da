// SPDX-License-Identifier: MIT
// What pages are as a pool.
#include <quarry/pages.h>

#include "kinds.h"

static quarry_pool_t *create(const quarry_pool_options_t *options) {
    return quarry_pages_create(&(quarry_pages_options_t){.pool = options ? *options : (quarry_pool_options_t){0}});
}
POOL_KIND(pages, .create = create)
