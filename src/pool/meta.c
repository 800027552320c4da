// SPDX-License-Identifier: MIT
// meta.c: memory for pools' own records: structures, tables of the observer, buffers of the log.
//
// Records are cut from regions of the kernel's pages and reused by size (steps of a cache line up to 16 KiB);
// larger ones are mappings of their own. Regions are never given back: they hold what is small and few.
#include <string.h>

#include "base/num.h"
#include "os/os.h"
#include "pool/checker.h"
#include "pool/pool.h"

#define REGION_BYTES ((size_t)64 * 1024)
#define SMALL_BYTES ((size_t)16 * 1024)
#define SIZES (SMALL_BYTES / QY_CACHE_LINE)

typedef struct pool_meta_spare {
    quarry_pool_t head;  // of the pool this may have been; see qy_pool_meta_free
    struct pool_meta_spare *next;
} pool_meta_spare_t;

// At the begin of each region.
typedef struct pool_meta_region {
    QY_ALIGNED(QY_CACHE_LINE)
    struct pool_meta_region *older;
    size_t bytes;
} pool_meta_region_t;

static struct {
    qy_lock_t lock;
    pool_meta_region_t *newest;
    char *pos, *end;
    pool_meta_spare_t *spares[SIZES + 1];
} objects;

static void tell_of(const void *memory, size_t bytes, bool there) {
    const quarry_check_pool_t *checker = qy_checker_if_known();
    if (QY_UNLIKELY(checker)) checker->records(memory, bytes, there);
}

void qy_pool_meta_tell(void) {
    qy_lock_take(&objects.lock);
    for (pool_meta_region_t *r = objects.newest; r; r = r->older) tell_of(r, r->bytes, true);
    qy_lock_drop(&objects.lock);
}

static void *meta_map(size_t bytes) {
    void *p = qy_os_map(bytes, qy_os_page_size(), NULL);
    if (p) tell_of(p, bytes, true);
    return p;
}

static void *pool_meta_cut(size_t bytes) {
    QY_NEEDS(&objects.lock);
    if ((size_t)(objects.end - objects.pos) < bytes) {
        size_t region = qy_round_up(REGION_BYTES, qy_os_page_size());
        char *base = qy_os_map(region, qy_os_page_size(), NULL);
        if (!base) return NULL;
        qy_os_name(base, region, "quarry pools");
        pool_meta_region_t *r = (pool_meta_region_t *)(void *)base;
        *r = (pool_meta_region_t){.older = objects.newest, .bytes = region};
        objects.newest = r;
        objects.pos = (char *)(r + 1);
        objects.end = base + region;
        tell_of(base, region, true);
    }
    void *p = objects.pos;
    objects.pos += bytes;
    return p;
}

void *qy_pool_meta_alloc(size_t bytes) {
    bytes = qy_round_up(bytes, QY_CACHE_LINE);
    if (bytes > SMALL_BYTES) return meta_map(qy_round_up(bytes, qy_os_page_size()));
    qy_lock_take(&objects.lock);
    pool_meta_spare_t **list = &objects.spares[bytes / QY_CACHE_LINE], *s = *list;
    if (s) *list = s->next;
    void *fresh = s ? NULL : pool_meta_cut(bytes);
    qy_lock_drop(&objects.lock);
    return s ? memset(s, 0, bytes) : fresh;  // what is cut is the kernel's, so zero
}

// The link lies behind what every pool begins with: its operations, which are those of the dead by now, and its `alive`
// mark stay readable until the record is used again, so most uses of a destroyed pool are seen.
void qy_pool_meta_free(void *object, size_t bytes) {
    bytes = qy_round_up(bytes, QY_CACHE_LINE);
    if (bytes > SMALL_BYTES) {
        bytes = qy_round_up(bytes, qy_os_page_size());
        tell_of(object, bytes, false);
        qy_os_unmap(object, bytes);
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
