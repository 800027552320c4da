// SPDX-License-Identifier: MIT
// libc.c: the C library's malloc as a pool.
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "pool/pool.h"

#define LIBC_ALIGNMENT 16
#define LIBC_SMALL 8  // mallocs align requests of so many bytes to 8 only, as C23 says

static size_t libc_bytes(size_t size, size_t alignment) {
    return qy_max(size, alignment > LIBC_SMALL ? LIBC_SMALL + 1 : 1);
}

static void *libc_alloc(quarry_pool_t *pool, size_t size, size_t alignment, unsigned flags) {
    if (!qy_pool_sane(pool, size, alignment)) return qy_pool_refuse(pool, size, alignment);
    size = libc_bytes(size, alignment);
    void *p = NULL;
    if (alignment <= LIBC_ALIGNMENT) p = flags & QUARRY_POOL_ZERO ? calloc(1, size) : malloc(size);
    else if (!posix_memalign(&p, alignment, size) && (flags & QUARRY_POOL_ZERO)) memset(p, 0, size);
    return p ? p : qy_pool_no_memory(pool, size);
}

static size_t libc_usable(quarry_pool_t *pool, const void *ptr) {
    (void)pool;
    return malloc_usable_size((void *)ptr);
}

static void *libc_resize(
    quarry_pool_t *pool, void *ptr, size_t old_size, size_t size, size_t alignment, unsigned flags) {
    if (!ptr) return libc_alloc(pool, size, alignment, flags);
    if (!qy_pool_sane(pool, size, alignment)) return qy_pool_refuse(pool, size, alignment);
    size = libc_bytes(size, alignment);
    if (old_size == QUARRY_SIZE_UNKNOWN) old_size = malloc_usable_size(ptr);
    if (alignment <= LIBC_ALIGNMENT) {
        char *p = realloc(ptr, size);
        if (p && (flags & QUARRY_POOL_ZERO) && size > old_size) memset(p + old_size, 0, size - old_size);
        return p ? p : qy_pool_no_memory(pool, size);
    }
    void *p = libc_alloc(pool, size, alignment, flags);  // realloc would forget the alignment
    if (!p) return NULL;
    memcpy(p, ptr, qy_min(old_size, size));
    free(ptr);
    return p;
}

static void libc_free(quarry_pool_t *pool, void *ptr, size_t size) {
    (void)pool;
    (void)size;
    int saved = errno;  // older C libraries change it
    free(ptr);
    errno = saved;
}

static void libc_destroy(quarry_pool_t *pool) { (void)pool; }

static const quarry_pool_ops_t libc_ops = {
    .kind = "libc",
    .capabilities = QUARRY_POOL_FREES | QUARRY_POOL_SIZES | QUARRY_POOL_ANY_FREE | QUARRY_POOL_SHARED,
    .max_alignment = (size_t)1 << 30,
    .alloc = libc_alloc,
    .resize = libc_resize,
    .free = libc_free,
    .usable = libc_usable,
    .destroy = libc_destroy,
};

static qy_pool_info_t libc_info;
static quarry_pool_t libc_pool = {.ops = &libc_ops, .alive = QY_POOL_ALIVE, .info = &libc_info};
static qy_pool_info_t libc_info = {.name = "libc", .pool = &libc_pool, .flags = QUARRY_POOL_UNTRACKED};

quarry_pool_t *quarry_libc_pool(void) { return &libc_pool; }
