// SPDX-License-Identifier: MIT
// What a tlsf pool is as a pool: growing, and under its lock.
#include <quarry/tlsf.h>

#include "kinds.h"

static quarry_pool_t *create(const quarry_pool_options_t *options) {
    return quarry_tlsf_create(&(quarry_tlsf_options_t){.pool = options ? *options : (quarry_pool_options_t){0}});
}
POOL_KIND(tlsf, .create = create)

static quarry_pool_t *create_locked(const quarry_pool_options_t *options) {
    return quarry_tlsf_create(&(quarry_tlsf_options_t){
        .pool = options ? *options : (quarry_pool_options_t){0}, .chunk_bytes = 65536, .flags = QUARRY_TLSF_LOCK});
}
POOL_KIND(tlsf_locked, .create = create_locked)
