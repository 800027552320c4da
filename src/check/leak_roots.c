// SPDX-License-Identifier: MIT
// leak_roots.c: see leak_roots.h.
#include "check/leak_roots.h"

#include "base/num.h"
#include "check/leak_memory.h"
#include "check/leak_sort.h"
#include "heap/huge.h"
#include "os/module.h"
#include "os/os.h"
#include "pages/map.h"
#include "pages/meta.h"
#include "stacks/own.h"

#define FIRST_ROOM ((size_t)4096)  // of ranges that are no roots
#define VTABLE_WORDS 3u            // in so many of the first words there is a function

static size_t range_bytes(size_t room) { return room * sizeof(qy_leak_range_t); }

static size_t count_regions(const qy_os_maps_t *maps) {
    qy_os_region_t region;
    size_t n = 0;
    for (size_t at = 0; qy_os_maps_next(maps, &at, &region);) n++;
    return n;
}

bool qy_leak_roots_begin(qy_leak_roots_t *r) {
    *r = (qy_leak_roots_t){.none_room = FIRST_ROOM};
    qy_os_maps_t maps = qy_os_maps_read();
    size_t n = count_regions(&maps);
    r->region_bytes = n * sizeof *r->regions;
    r->regions = n ? qy_leak_memory(r->region_bytes) : NULL;
    r->none = qy_leak_memory(range_bytes(r->none_room));
    if (r->regions)
        for (size_t at = 0; r->count < n && qy_os_maps_next(&maps, &at, &r->regions[r->count]);) r->count++;
    qy_os_maps_free(&maps);
    return r->regions && r->none;
}

void qy_leak_roots_end(qy_leak_roots_t *r) {
    qy_leak_memory_end(r->regions, r->region_bytes);
    qy_leak_memory_end(r->none, range_bytes(r->none_room));
    *r = (qy_leak_roots_t){0};
}

// ---- what is no root --------------------------------------------------------------------------------

static bool ranges_grow(qy_leak_roots_t *r) {
    qy_leak_range_t *more = qy_leak_memory(range_bytes(2 * r->none_room));
    if (!more) return false;
    for (size_t i = 0; i < r->none_count; i++) more[i] = r->none[i];
    qy_leak_memory_end(r->none, range_bytes(r->none_room));
    r->none = more;
    r->none_room *= 2;
    return true;
}

void qy_leak_roots_without(qy_leak_roots_t *r, uintptr_t begin, uintptr_t end) {
    // Without room for it the range stays a root: a leak may be missed, and none invented.
    if (begin >= end || (r->none_count == r->none_room && !ranges_grow(r))) return;
    r->none[r->none_count++] = (qy_leak_range_t){begin, end};
}

static void without(const void *base, size_t bytes, void *arg) {
    qy_leak_roots_without(arg, (uintptr_t)base, (uintptr_t)base + bytes);
}
static bool without_too(const void *base, size_t bytes, void *arg) {
    without(base, bytes, arg);
    return true;
}

// In place a stopped thread may hold a lock. In a copy there is no such thread.
static bool may_look(qy_lock_t *lock, bool copy) {
    if (copy) qy_lock_reset(lock);
    if (!qy_lock_try(lock)) return false;
    qy_lock_drop(lock);
    return true;
}

bool qy_leak_roots_without_own(qy_leak_roots_t *r, bool copy) {
    qy_os_module_t library;
    if (!may_look(qy_map_lock(), copy) || !may_look(qy_meta_lock(), copy)) return false;
    qy_map_each(without, r);
    qy_meta_each(without_too, r);
    qy_own_each(without, r);
    qy_leak_memory_each(without, r);
    if (qy_os_module_at((uintptr_t)&qy_leak_roots_without_own, &library) && !library.main)
        qy_leak_roots_without(r, library.begin, library.end);
    return true;
}

// The end of the heap's memory at this address, 0: it is none. Without the map's lock: nothing changes now.
static uintptr_t heap_until(uintptr_t at) {
    size_t i = qy_map_index((const void *)at);
    const qy_map_record_t *record = atomic_load_explicit(qy_map_slot(qy_map_tags, i), memory_order_acquire);
    while (record && !qy_map_record_holds(record, (const void *)at)) record = record->alias;
    if (!record) return 0;
    size_t bytes = QY_CHUNK;
    if (atomic_load_explicit(&record->kind, memory_order_relaxed) != QY_RECORD_UNITS)
        bytes = qy_max(((const qy_huge_t *)record)->mapped, QY_CHUNK);
    return (uintptr_t)record->base + bytes;
}

// ---- threads ----------------------------------------------------------------------------------------

// The number of the region that holds the address, or `count`.
static size_t region_at(const qy_leak_roots_t *r, uintptr_t address) {
    size_t low = 0, high = r->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (r->regions[middle].end <= address) low = middle + 1;
        else high = middle;
    }
    return low < r->count && r->regions[low].begin <= address ? low : r->count;
}

// A stack that ends at a page without access. Other memory with a stack in it (coroutines', or one that the program
// allocated) may have data below the stack.
static bool is_whole_stack(const qy_leak_roots_t *r, size_t i) {
    if (r->regions[i].flags & QY_REGION_STACK) return true;
    return i && r->regions[i - 1].end == r->regions[i].begin && !(r->regions[i - 1].flags & QY_REGION_READ);
}

void qy_leak_roots_thread(qy_leak_roots_t *r, qy_leak_flood_t *f, const qy_os_standing_t *standing) {
    qy_leak_flood_root(f, standing->registers[0], standing->registers[1]);
    qy_leak_flood_root(f, standing->vectors[0], standing->vectors[1]);
    uint32_t block = qy_leak_blocks_find(f->space.blocks, standing->sp);
    if (block != QY_LEAK_NONE) qy_leak_flood_block(f, block);
    size_t i = region_at(r, standing->sp);
    if (i < r->count && !heap_until(standing->sp) && is_whole_stack(r, i))
        qy_leak_roots_without(r, r->regions[i].begin, standing->sp);
}

// ---- all roots --------------------------------------------------------------------------------------

static bool range_before(size_t a, size_t b, void *arg) {
    const qy_leak_range_t *ranges = arg;
    return ranges[a].begin < ranges[b].begin;
}
static void range_swap(size_t a, size_t b, void *arg) {
    qy_leak_range_t *ranges = arg, kept = ranges[a];
    ranges[a] = ranges[b];
    ranges[b] = kept;
}

// Where the memory at `at` that is no root ends; `at` itself if it is one, and then *ret_to is where the next begins.
static uintptr_t none_until(const qy_leak_roots_t *r, uintptr_t at, uintptr_t end, uintptr_t *ret_to, size_t *first) {
    uintptr_t heap = heap_until(at);
    if (heap) return heap;
    *ret_to = qy_min(end, qy_round_down(at, QY_CHUNK) + QY_CHUNK);
    while (*first < r->none_count && r->none[*first].end <= at) ++*first;
    for (size_t i = *first; i < r->none_count && r->none[i].begin < *ret_to; i++) {
        if (r->none[i].end <= at) continue;
        if (r->none[i].begin <= at) return r->none[i].end;
        *ret_to = r->none[i].begin;
        break;
    }
    return at;
}

static void flood_region(qy_leak_roots_t *r, qy_leak_flood_t *f, const qy_os_region_t *region, size_t *first) {
    for (uintptr_t at = region->begin, to = at; at < region->end && !f->stopped;) {
        uintptr_t next = none_until(r, at, region->end, &to, first);
        if (next == at) {
            qy_leak_flood_root(f, at, to);
            r->bytes += to - at;
            next = to;
        }
        at = next;
    }
}

// The program may have written to memory before it made that read-only. Of a file it has mostly constants.
static bool may_hold_pointers(unsigned flags) {
    if (!(flags & QY_REGION_READ)) return false;
    return flags & QY_REGION_WRITE || !(flags & (QY_REGION_FILE | QY_REGION_SHARED | QY_REGION_KERNEL));
}

void qy_leak_roots_flood(qy_leak_roots_t *r, qy_leak_flood_t *f) {
    qy_leak_sort(r->none_count, &(qy_leak_sort_t){range_before, range_swap, r->none});
    size_t first = 0;
    for (size_t i = 0; i < r->count; i++) {
        const qy_os_region_t *region = &r->regions[i];
        if (!may_hold_pointers(region->flags) || (region->flags & QY_REGION_SHARED && !r->shared)) continue;
        // A copy of the process begins without the pages of shared memory.
        int known = f->touched.fd;
        if (region->flags & QY_REGION_SHARED) f->touched.fd = -1;
        flood_region(r, f, region, &first);
        f->touched.fd = known;
    }
}

bool qy_leak_roots_is_vtable(uintptr_t address, void *arg) {
    const qy_leak_roots_t *r = arg;
    if (!address || address % sizeof(uintptr_t)) return false;
    size_t i = region_at(r, address);
    const unsigned looked_at = QY_REGION_READ | QY_REGION_WRITE | QY_REGION_FILE;
    if (i == r->count || (r->regions[i].flags & looked_at) != (QY_REGION_READ | QY_REGION_FILE)) return false;
    for (uintptr_t at = address; at < address + VTABLE_WORDS * sizeof at && at < r->regions[i].end; at += sizeof at) {
        size_t code = region_at(r, *(const uintptr_t *)at);
        if (code < r->count && r->regions[code].flags & QY_REGION_EXEC) return true;
    }
    return false;
}
