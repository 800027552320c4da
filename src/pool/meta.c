// SPDX-License-Identifier: MIT
// meta.c: memory for pools' own records: structures, tables of the observer, buffers of the log.
//
// Records are cut from regions of the kernel's pages and reused by size (steps of a cache line up to 16 KiB);
// larger ones are mappings of their own. Regions are never given back: they hold what is small and few.
#include <string.h>

#include "base/num.h"
#include "os/os.h"
#include "pool/pool.h"

#define REGION_BYTES ((size_t)64 * 1024)
#define SMALL_BYTES ((size_t)16 * 1024)
#define SIZES (SMALL_BYTES / QY_CACHE_LINE)

typedef struct pool_meta_spare {
    quarry_pool_t head;  // of the pool this may have been; see qy_pool_meta_free
    struct pool_meta_spare *next;
} pool_meta_spare_t;

static struct {
    qy_lock_t lock;
    char *pos, *end;
    pool_meta_spare_t *spares[SIZES + 1];
} objects;

static void *pool_meta_cut(size_t bytes) {
    QY_NEEDS(&objects.lock);
    if ((size_t)(objects.end - objects.pos) < bytes) {
        size_t region = qy_round_up(REGION_BYTES, qy_os_page_size());
        char *base = qy_os_map(region, qy_os_page_size(), NULL);
        if (!base) return NULL;
        qy_os_name(base, region, "quarry pools");
        objects.pos = base;
        objects.end = base + region;
    }
    void *p = objects.pos;
    objects.pos += bytes;
    return p;
}

void *qy_pool_meta_alloc(size_t bytes) {
    bytes = qy_round_up(bytes, QY_CACHE_LINE);
    if (bytes > SMALL_BYTES) return qy_os_map(qy_round_up(bytes, qy_os_page_size()), qy_os_page_size(), NULL);
    qy_lock_take(&objects.lock);
    pool_meta_spare_t **list = &objects.spares[bytes / QY_CACHE_LINE], *s = *list;
    if (s) *list = s->next;
    else s = pool_meta_cut(bytes);
    qy_lock_drop(&objects.lock);
    return s ? memset(s, 0, bytes) : NULL;
}

// The link lies behind what every pool begins with: its operations, which are those of the dead by now, and its `alive`
// mark stay readable until the record is used again, so most uses of a destroyed pool are seen.
void qy_pool_meta_free(void *object, size_t bytes) {
    bytes = qy_round_up(bytes, QY_CACHE_LINE);
    if (bytes > SMALL_BYTES) {
        qy_os_unmap(object, qy_round_up(bytes, qy_os_page_size()));
        return;
    }
    qy_lock_take(&objects.lock);
    pool_meta_spare_t *s = object, **list = &objects.spares[bytes / QY_CACHE_LINE];
    s->next = *list;
    *list = s;
    qy_lock_drop(&objects.lock);
}

bool qy_pool_meta_fork_by_malloc;

void qy_pool_meta_fork(int phase) { qy_lock_fork(&objects.lock, phase); }
