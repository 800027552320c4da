// SPDX-License-Identifier: MIT
// meta.c: see meta.h.
#include "heap/meta.h"

#include <string.h>

#include "os/os.h"

#define REGION_BYTES ((size_t)256 * 1024)
#define BITMAP_BYTES ((size_t)512)
#define PLACES 16u

typedef struct spare {
    struct spare *next;
} spare_t;

static struct {
    qy_lock_t lock;
    char *pos, *end;
    _Atomic size_t bytes;
    spare_t *slabs, *bitmaps;
    struct {
        char *base;
        size_t bytes;
    } place[PLACES];  // neighbours are one; more than these are not remembered
} meta;

static void remember_locked(char *base, size_t bytes) {
    for (unsigned i = 0; i < PLACES; i++) {
        bool taken = meta.place[i].base;
        bool below = taken && base + bytes == meta.place[i].base, above = taken && meta.place[i].base + meta.place[i].bytes == base;
        if (taken && !below && !above) continue;
        if (!above) meta.place[i].base = base;
        meta.place[i].bytes += bytes;
        return;
    }
}

static void *alloc_locked(size_t bytes) {
    bytes = qy_round_up(bytes, QY_CACHE_LINE);
    if ((size_t)(meta.end - meta.pos) < bytes) {
        // The rest of the old region is given up: at most one record's size in 256 KiB.
        size_t region = qy_max(REGION_BYTES, qy_round_up(bytes, qy_os_page_size()));
        char *base = qy_os_map(region, qy_os_page_size(), NULL);
        if (!base && region > bytes) {
            region = qy_round_up(bytes, qy_os_page_size());
            base = qy_os_map(region, qy_os_page_size(), NULL);
        }
        if (!base) return NULL;
        qy_os_name(base, region, "quarry metadata");
        remember_locked(base, region);
        meta.pos = base;
        meta.end = base + region;
    }
    void *p = meta.pos;
    meta.pos += bytes;
    meta.bytes += bytes;
    return p;
}

void *qy_meta_alloc(size_t bytes) {
    qy_lock_take(&meta.lock);
    void *p = alloc_locked(bytes);
    qy_lock_drop(&meta.lock);
    return p;
}

static void *spare_take(spare_t **list, size_t bytes) {
    qy_lock_take(&meta.lock);
    spare_t *s = *list;
    if (s) *list = s->next;
    else s = alloc_locked(bytes);
    qy_lock_drop(&meta.lock);
    if (s) memset(s, 0, bytes);
    return s;
}

static void spare_put(spare_t **list, void *p) {
    spare_t *s = p;
    qy_lock_take(&meta.lock);
    s->next = *list;
    *list = s;
    qy_lock_drop(&meta.lock);
}

qy_slab_t *qy_meta_slab_new(void) { return spare_take(&meta.slabs, sizeof(qy_slab_t)); }
void qy_meta_slab_delete(qy_slab_t *slab) { spare_put(&meta.slabs, slab); }
uint64_t *qy_meta_bitmap_new(void) { return spare_take(&meta.bitmaps, BITMAP_BYTES); }
void qy_meta_bitmap_delete(uint64_t *bitmap) { spare_put(&meta.bitmaps, bitmap); }
size_t qy_meta_bytes(void) { return meta.bytes; }

void qy_meta_each(bool (*fn)(const void *base, size_t bytes, void *arg), void *arg) {
    qy_lock_take(&meta.lock);
    for (unsigned i = 0; i < PLACES && meta.place[i].base; i++)
        if (!fn(meta.place[i].base, meta.place[i].bytes, arg)) break;
    qy_lock_drop(&meta.lock);
}

qy_lock_t *qy_meta_lock(void) { return &meta.lock; }
