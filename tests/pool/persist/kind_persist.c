// SPDX-License-Identifier: MIT
// What a persistent pool is as a pool. Its file goes with it.
#include <quarry/persist.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../kinds.h"

static struct {
    quarry_pool_t *pool;
    char path[64];
} made[8];

static quarry_pool_t *create(const quarry_pool_options_t *options) {
    int i = 0;
    while (made[i].pool) i++;
    snprintf(made[i].path, sizeof made[i].path, "%s/quarry-kind-XXXXXX",
        access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    int fd = mkstemp(made[i].path);
    if (fd < 0) return NULL;
    close(fd);  // empty: may be made into a pool
    quarry_persist_t *store = quarry_persist_open(
        made[i].path, &(quarry_persist_options_t){
                          .pool = options ? *options : (quarry_pool_options_t){0}, .flags = QUARRY_PERSIST_CREATE});
    unlink(made[i].path);
    return store ? made[i].pool = quarry_persist_pool(store) : NULL;
}

static void destroy(quarry_pool_t *pool) {
    int i = 0;
    while (made[i].pool != pool) i++;
    made[i].pool = NULL;
    quarry_pool_destroy(pool);
}

POOL_KIND(persist, .create = create, .destroy = destroy, .clears = true)
