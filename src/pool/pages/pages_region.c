// SPDX-License-Identifier: MIT
// pages_region.c: where pages come from and go back to.
#include <errno.h>
#include <string.h>

#include "os/mapfile.h"
#include "os/os.h"
#include "pool/observe.h"
#include "pool/pages.h"

#define ROOM_FIRST 32u

// ---- the table of regions ---------------------------------------------------------------------------------

// The regions are few (each is at least an eighth of what there was before it), so a sorted array does.
qy_pages_region_t *qy_pages_region_of(const qy_pages_t *p, const void *ptr) {
    uint32_t low = 0, high = p->regions;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        const qy_pages_region_t *r = p->ordered[middle];
        if ((const char *)ptr < r->base) high = middle;
        else if ((size_t)((const char *)ptr - r->base) >= r->pages * p->page) low = middle + 1;
        else return p->ordered[middle];
    }
    return NULL;
}

static bool pages_region_more_room(qy_pages_t *p) {
    uint32_t room = p->region_room ? p->region_room * 2 : ROOM_FIRST;
    if (p->regions < p->region_room) return true;
    qy_pages_region_t **both = qy_pool_meta_alloc((size_t)room * 2 * sizeof *both);
    if (!both) return false;
    if (p->region_room) {
        memcpy(both, p->region, p->region_room * sizeof *both);
        memcpy(both + room, p->ordered, p->regions * sizeof *both);
        qy_pool_meta_free(p->region, (size_t)p->region_room * 2 * sizeof *both);
    }
    p->region = both;
    p->ordered = both + room;
    p->region_room = room;
    return true;
}

static bool make_records(qy_pages_region_t *r) {
    size_t words = (r->pages + 63) / 64;
    r->record_bytes = r->pages * sizeof(qy_page_t) + 3 * words * sizeof(qy_page_bits_t);
    r->records = qy_pool_meta_alloc(r->record_bytes);
    if (!r->records) return false;
    r->bits_used = r->records;
    r->bits_start = r->bits_used + words;
    r->bits_dirty = r->bits_start + words;
    r->page = (qy_page_t *)(void *)(r->bits_dirty + words);
    return true;
}

qy_pages_region_t *qy_pages_region_add(qy_pages_t *p, qy_pages_region_t what, bool zero) {
    QY_PAGES_NEEDS_LOCK(p);
    qy_pages_region_t *r = pages_region_more_room(p) ? qy_pool_meta_alloc(sizeof *r) : NULL;
    if (!r) return NULL;
    *r = what;
    if (!make_records(r)) {
        qy_pool_meta_free(r, sizeof *r);
        return NULL;
    }
    while (p->region[r->number]) r->number++;
    p->region[r->number] = r;
    uint32_t at = p->regions++;
    for (; at && p->ordered[at - 1]->base > r->base; at--) p->ordered[at] = p->ordered[at - 1];
    p->ordered[at] = r;
    p->held_pages += r->pages;
    if (!zero) {
        qy_bits_set(r->bits_dirty, 0, r->pages, true);
        if (r->purgeable) p->dirty_pages += r->pages;
    }
    qy_observe_hide(&p->pool, r->base, r->pages * p->page);
    qy_pages_put(p, r, 0, r->pages);
    return r;
}

// The region's one free run, if it has one, goes with it.
static void pages_region_forget(qy_pages_t *p, qy_pages_region_t *r) {
    for (size_t i = 0; i < r->pages;) {
        if (qy_bit(r->bits_used, i)) {
            i = qy_bits_find(r->bits_used, i, r->pages, false);
            continue;
        }
        size_t n = r->page[i].count;
        unsigned bin = qy_bin_of(n);
        qy_list_remove(&r->page[i].link);
        if (qy_list_empty(&p->bins[bin])) p->bitmap[bin / 64] &= ~(UINT64_C(1) << bin % 64);
        p->free_runs--;
        for (size_t at = i; r->purgeable && at < i + n; at++) p->dirty_pages -= qy_bit(r->bits_dirty, at);
        i += n;
    }
    p->held_pages -= r->pages;
    p->used_pages -= r->used;
    p->region[r->number] = NULL;
    uint32_t at = 0;
    while (p->ordered[at] != r) at++;
    for (p->regions--; at < p->regions; at++) p->ordered[at] = p->ordered[at + 1];
    qy_pool_meta_free(r->records, r->record_bytes);
}

// ---- growing ------------------------------------------------------------------------------------------------

// The file is made longer and mapped. Its bytes count as held; a limit holds for them, too. With the lock: the end of
// the file moves.
static qy_pages_region_t *grow_file(qy_pages_t *p, size_t need, size_t want, size_t alignment) {
    qy_pool_info_t *info = p->pool.info;
    size_t limit = atomic_load_explicit(&info->limit, memory_order_relaxed),
           held = atomic_load_explicit(&info->held, memory_order_relaxed);
    if (limit && want > limit - qy_min(limit, held)) want = need;
    if (limit && want > limit - qy_min(limit, held)) return NULL;
    char *base = qy_os_reserve(want, alignment, NULL);
    if (!base) return NULL;
    uint64_t offset = p->file_bytes;
    qy_pages_region_t *added = NULL;
    // In memory a file needs no blocks beforehand: its pages are made when they are touched, as other memory.
    int r = p->flags & QUARRY_PAGES_MEMFD ? qy_os_file_truncate(p->fd, offset + want)
                                          : qy_os_file_allocate(p->fd, offset, want);
    if (!r && qy_os_map_at(base, want, p->fd, offset, QY_MAP_SHARED | QY_MAP_WRITE))
        added = qy_pages_region_add(p,
            (qy_pages_region_t){.base = base,
                .pages = want >> p->shift,
                .offset = offset,
                .fixed = true,
                .purgeable = p->flags & QUARRY_PAGES_MEMFD},
            true);
    if (!added) {
        if (!r) qy_os_file_truncate(p->fd, offset);
        qy_os_unmap(base, want);
        return NULL;
    }
    p->file_bytes += want;
    atomic_fetch_add_explicit(&info->held, want, memory_order_relaxed);
    atomic_fetch_add_explicit(&info->chunk_gets, 1, memory_order_relaxed);
    if (atomic_load_explicit(&info->peak_held, memory_order_relaxed) < held + want)
        atomic_store_explicit(&info->peak_held, held + want, memory_order_relaxed);
    qy_pool_grown(&p->pool, want);
    return added;
}

static bool pages_region_get_chunk(
    qy_pages_t *p, size_t need, size_t want, size_t alignment, qy_pages_region_t *ret_region, bool *ret_zero) {
    const quarry_pool_t *parent = p->pool.info->parent;
    qy_pool_chunk_t chunk;
    if (parent && alignment > parent->ops->max_alignment) {  // then with room for it
        if (__builtin_add_overflow(need, alignment, &need)) return false;
        want = qy_max(want, need);
        alignment = p->page;
    }
    if (!qy_chunk_get(&p->pool, need, want, alignment, &chunk)) return false;
    if (!parent) {
        if (p->flags & QUARRY_PAGES_HUGE) qy_os_advise_huge(chunk.base, chunk.bytes, true);
        if (p->flags & QUARRY_PAGES_NO_HUGE) qy_os_advise_huge(chunk.base, chunk.bytes, false);
        qy_os_name(chunk.base, chunk.bytes, "quarry pages");
    }
    *ret_zero = chunk.zero;
    *ret_region = (qy_pages_region_t){
        .base = chunk.base, .pages = chunk.bytes >> p->shift, .chunk_bytes = chunk.bytes, .purgeable = !parent};
    return true;
}

static qy_pages_region_t *grow_chunk(qy_pages_t *p, size_t need, size_t want, size_t alignment) {
    qy_pages_region_t region, *added = NULL;
    bool zero = true;
    qy_pages_leave(p);
    bool got = pages_region_get_chunk(p, need, want, alignment, &region, &zero);
    qy_pages_enter(p);
    if (got) added = qy_pages_region_add(p, region, zero);
    if (got && !added) qy_chunk_put(&p->pool, region.base, region.chunk_bytes);
    return added;
}

qy_pages_region_t *qy_pages_grow(qy_pages_t *p, size_t n, size_t alignment, size_t *ret_first) {
    size_t need, want;
    if (p->flags & QUARRY_PAGES_FIXED || n > QUARRY_POOL_MAX >> p->shift) return NULL;
    need = n << p->shift;
    want = qy_max(need, qy_max(p->region_bytes,
                            qy_round_up(atomic_load_explicit(&p->pool.info->held, memory_order_relaxed) / 8, p->page)));
    if (p->flags & QUARRY_PAGES_HUGE) {
        alignment = qy_max(alignment, p->huge_bytes);
        if (want < QUARRY_POOL_MAX / 2) want = qy_round_up(want, p->huge_bytes);
    }
    qy_bump(&p->pool.info->slow_calls, 1);
    // Its number of pages must fit a descriptor.
    want = qy_min(want, (size_t)UINT32_MAX << p->shift);
    if (want < need) return NULL;
    qy_pages_region_t *r = p->fd >= 0 ? grow_file(p, need, want, alignment) : grow_chunk(p, need, want, alignment);
    if (r && (*ret_first = qy_pages_take_of_new(p, r, n, alignment)) == SIZE_MAX) return NULL;
    return r;
}

// ---- giving back --------------------------------------------------------------------------------------------

static bool purge_range(qy_pages_t *p, qy_pages_region_t *r, size_t first, size_t n) {
    char *at = r->base + first * p->page;
    bool gone = p->fd >= 0 ? qy_os_file_punch(p->fd, r->offset + first * p->page, n * p->page) == 0
                           : qy_os_purge(at, n * p->page);
    if (!gone) return false;
    qy_bits_set(r->bits_dirty, first, n, false);
    p->dirty_pages -= n;
    p->purged += n;
    return true;
}

// Longest runs first: most memory for a call.
size_t qy_pages_purge(qy_pages_t *p, size_t keep) {
    size_t before = p->dirty_pages;
    QY_PAGES_NEEDS_LOCK(p);
    for (unsigned bin = QY_PAGES_BINS; bin-- && p->dirty_pages > keep;) {
        QY_LIST_EACH(link, &p->bins[bin]) {
            qy_page_t *head = QY_LIST_ITEM(link, qy_page_t, link);
            qy_pages_region_t *r = p->region[head->region];
            size_t at = (size_t)(head - r->page), end = at + head->count, stop;
            if (p->dirty_pages <= keep) break;
            if (!r->purgeable) continue;
            for (; (at = qy_bits_find(r->bits_dirty, at, end, true)) < end; at = stop) {
                stop = qy_bits_find(r->bits_dirty, at, end, false);
                if (!purge_range(p, r, at, stop - at)) return before - p->dirty_pages;
            }
        }
    }
    return before - p->dirty_pages;
}

size_t qy_pages_drop_empty(qy_pages_t *p, size_t spare) {
    size_t pages = 0;
    QY_PAGES_NEEDS_LOCK(p);
    for (uint32_t i = p->regions; i--;) {
        qy_pages_region_t *r = p->ordered[i];
        if (r->used || r->fixed || (spare && spare--)) continue;
        char *base = r->base;
        size_t n = r->pages, bytes = r->chunk_bytes;
        pages_region_forget(p, r);
        qy_pool_meta_free(r, sizeof *r);
        qy_observe_show(&p->pool, base, n * p->page);
        qy_chunk_put(&p->pool, base, bytes);
        pages += n;
    }
    return pages;
}

void qy_pages_drop_all(qy_pages_t *p) {
    while (p->regions) {
        qy_pages_region_t *r = p->ordered[p->regions - 1];
        char *base = r->base;
        size_t bytes = r->pages * p->page, chunk_bytes = r->chunk_bytes;
        bool fixed = r->fixed;
        pages_region_forget(p, r);
        qy_pool_meta_free(r, sizeof *r);
        qy_observe_show(&p->pool, base, bytes);
        if (!fixed) qy_chunk_put(&p->pool, base, chunk_bytes);
        else if (p->fd >= 0) {
            qy_os_unmap(base, bytes);
            qy_pool_discharge(&p->pool, bytes);
        }
    }
    if (p->region_room) qy_pool_meta_free(p->region, (size_t)p->region_room * 2 * sizeof *p->region);
}
