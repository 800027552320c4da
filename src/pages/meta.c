// SPDX-License-Identifier: MIT
// meta.c: see meta.h.
#include "pages/meta.h"

#include "os/os.h"

#include <string.h>

#define REGION_BYTES ((size_t)256 * 1024)
#define BITS_SIZES 4u  // a cache line, two, four, eight
#define PLACES 16u

typedef struct qy_meta_spare {
    struct qy_meta_spare *next;
} meta_spare_t;

static struct {
    qy_lock_t lock;
    char *pos, *end;
    char *gap, *gap_end;  // room behind what lies on pages of its own: for bitmaps
    _Atomic size_t bytes;
    qy_meta_records_t bits[BITS_SIZES];
    struct {
        char *base;
        size_t bytes;
    } place[PLACES];  // neighbours are one; more than these are not remembered
} meta;

static void remember_locked(char *base, size_t bytes) {
    QY_NEEDS(&meta.lock);
    for (unsigned i = 0; i < PLACES; i++) {
        bool taken = meta.place[i].base;
        bool below = taken && base + bytes == meta.place[i].base,
             above = taken && meta.place[i].base + meta.place[i].bytes == base;
        if (taken && !below && !above) continue;
        if (!above) meta.place[i].base = base;
        meta.place[i].bytes += bytes;
        return;
    }
}

static char *take_gap_locked(size_t bytes) {
    QY_NEEDS(&meta.lock);
    if ((size_t)(meta.gap_end - meta.gap) < bytes) return NULL;
    char *p = meta.gap;
    meta.gap += bytes;
    return p;
}

// Bitmaps come from the other end of the region than all else, so that descriptors made in a row are neighbours
// (remote.c).
static void *alloc_locked(size_t bytes, bool high) {
    QY_NEEDS(&meta.lock);
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
    meta.bytes += bytes;
    if (high) return meta.end -= bytes;
    void *p = meta.pos;
    meta.pos += bytes;
    return p;
}

void *qy_meta_alloc(size_t bytes) {
    qy_lock_take(&meta.lock);
    void *p = alloc_locked(bytes, false);
    qy_lock_drop(&meta.lock);
    return p;
}

void *qy_meta_alloc_apart(size_t bytes) {
    qy_lock_take(&meta.lock);
    char *low = alloc_locked(bytes + QY_META_PAGE, true), *p = low;
    if (low) {
        // As high as it may begin; what is below stays for others.
        p = meta.end = (char *)qy_round_down((uintptr_t)low + QY_META_PAGE, QY_META_PAGE);
        meta.bytes -= (size_t)(p - low);
        meta.gap = p + qy_round_up(bytes, QY_CACHE_LINE);
        meta.gap_end = low + qy_round_up(bytes + QY_META_PAGE, QY_CACHE_LINE);
    }
    qy_lock_drop(&meta.lock);
    return p;
}

static void *spare_take(qy_meta_records_t *of, size_t bytes, bool high) {
    qy_lock_take(&meta.lock);
    meta_spare_t *s = of->spare;
    if (s) of->spare = s->next;
    else if (!high || !(s = (meta_spare_t *)(void *)take_gap_locked(bytes))) s = alloc_locked(bytes, high);
    qy_lock_drop(&meta.lock);
    if (s) memset(s, 0, bytes);
    return s;
}

void *qy_meta_record_new(qy_meta_records_t *of, size_t bytes) { return spare_take(of, bytes, false); }

void qy_meta_record_delete(qy_meta_records_t *of, void *record) {
    meta_spare_t *s = record;
    qy_lock_take(&meta.lock);
    s->next = of->spare;
    of->spare = s;
    qy_lock_drop(&meta.lock);
}

static unsigned bits_size(uint32_t n) {
    size_t lines = (n + QY_CACHE_LINE * 8 - 1) / (QY_CACHE_LINE * 8);
    return lines <= 1 ? 0 : qy_log2_floor(lines - 1) + 1;
}
uint64_t *qy_meta_bits_new(uint32_t n) {
    return spare_take(&meta.bits[bits_size(n)], (size_t)QY_CACHE_LINE << bits_size(n), true);
}
void qy_meta_bits_delete(uint64_t *bits, uint32_t n) { qy_meta_record_delete(&meta.bits[bits_size(n)], bits); }
size_t qy_meta_bytes(void) { return meta.bytes; }

void qy_meta_each(bool (*fn)(const void *base, size_t bytes, void *arg), void *arg) {
    qy_lock_take(&meta.lock);
    for (unsigned i = 0; i < PLACES && meta.place[i].base; i++)
        if (!fn(meta.place[i].base, meta.place[i].bytes, arg)) break;
    qy_lock_drop(&meta.lock);
}

qy_lock_t *qy_meta_lock(void) { return &meta.lock; }
