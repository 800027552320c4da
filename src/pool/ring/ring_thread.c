// SPDX-License-Identifier: MIT
// ring_thread.c: the thread's own ring: made by its first newframe, destroyed when the thread ends.
#include <errno.h>
#include <pthread.h>

#include "os/os.h"
#include "pool/ring.h"

static qy_pool_info_t none_info = {.name = "r_pool", .pool = &qy_ring_none.hot.pool, .flags = QUARRY_POOL_UNTRACKED};
qy_ring_t qy_ring_none = {.hot.pool = {.ops = &qy_ring_ops, .alive = QY_POOL_ALIVE, .info = &none_info}};

QUARRY_THREAD_LOCAL quarry_ring_t *quarry_thread_ring = &qy_ring_none.hot;

static struct {
    pthread_once_t once;
    pthread_key_t key;
    bool usable;
} ends = {.once = PTHREAD_ONCE_INIT};

// A destructor of another key may use the ring once more: that makes a new one, and libc calls this again, in up to
// four rounds.
static void ring_thread_ends(void *ring) {
    quarry_thread_ring = &qy_ring_none.hot;
    quarry_pool_destroy(ring);
}

static void ring_make_key(void) { ends.usable = pthread_key_create(&ends.key, ring_thread_ends) == 0; }

void qy_ring_thread_forget(const qy_ring_t *r) {
    if (quarry_thread_ring != &r->hot) return;
    quarry_thread_ring = &qy_ring_none.hot;
    pthread_setspecific(ends.key, NULL);
}

quarry_pool_t *quarry_ring_of_thread(void) {
    if (QY_LIKELY(quarry_thread_ring != &qy_ring_none.hot)) return &quarry_thread_ring->pool;
    pthread_once(&ends.once, ring_make_key);
    quarry_ring_options_t options = {.pool = {.name = "r_pool", .flags = QUARRY_POOL_UNTRACKED}};
    quarry_pool_t *pool = quarry_ring_create(&options);
    if (!pool) return NULL;
    if (!ends.usable || pthread_setspecific(ends.key, pool) != 0) {
        quarry_pool_destroy(pool);
        errno = ENOMEM;
        return NULL;
    }
    quarry_thread_ring = (quarry_ring_t *)pool;
    return pool;
}
