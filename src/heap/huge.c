// SPDX-License-Identifier: MIT
// huge.c: objects that are a mapping of their own each: the first above 32 MiB, all above 128 MiB, and above 1 MiB
// those that grew or were to be zero (but for clear.h). It begins on a chunk boundary and is alone in its chunk entry
// of the map. Growing moves pages, not bytes. A freed one is unmapped at once.
#include "heap/clear.h"
#include "heap/heaps.h"
#include "heap/huge.h"
#include "os/os.h"
#include "pages/purging.h"
#include "pages/chunk.h"
#include "pages/map.h"
#include "pages/meta.h"
#include "rt/diag.h"
#include "rt/heuristics.h"

#include <string.h>

#define FREED_COUNT 64u
#define LEFT_COUNT 16u

static struct {
    qy_lock_t lock;
    qy_huge_t *live, *stuck, *spare;  // stuck: freed, but could not be unmapped yet
    size_t nlive, nstuck;
    _Atomic size_t live_bytes, stuck_bytes;  // under the lock; atomic for readers
    struct {
        char *base;
        size_t bytes;
    } left[LEFT_COUNT];    // reservations that could not be unmapped yet
    _Atomic(char *) hint;  // below the newest mapping: aligned, and mostly still free
    _Atomic(char *) top;   // the highest since the kernel chose a place; from there the hints go down
    _Atomic(const void *) freed[FREED_COUNT];
    _Atomic unsigned nfreed;
    _Atomic bool again;  // one was freed that could be a run
} huge;

static void list_add(qy_huge_t **list, qy_huge_t *c) {
    QY_NEEDS(&huge.lock);
    c->prev = NULL;
    c->next = *list;
    if (*list) (*list)->prev = c;
    *list = c;
}
static void list_remove(qy_huge_t **list, qy_huge_t *c) {
    QY_NEEDS(&huge.lock);
    if (c->prev) c->prev->next = c->next;
    else *list = c->next;
    if (c->next) c->next->prev = c->prev;
}

static void enter_live_locked(qy_huge_t *c, qy_heap_t *h, size_t n) {
    QY_NEEDS(&huge.lock);
    c->size = n;
    atomic_store_explicit(&c->heap, h, memory_order_relaxed);
    list_add(&huge.live, c);
    huge.nlive++;
    huge.live_bytes += c->mapped;
    if (h) {
        c->heap_prev = NULL;
        c->heap_next = h->huges;
        if (h->huges) h->huges->heap_prev = c;
        h->huges = c;
        h->held_bytes += c->mapped;
    }
    atomic_store_explicit(&c->record.kind, QY_RECORD_HUGE, memory_order_release);
}

// Take a live object out of the lists it is on. Its heap, if it has one, is locked.
static void leave_live_locked(qy_huge_t *c, qy_heap_t *h) {
    QY_NEEDS(&huge.lock);
    list_remove(&huge.live, c);
    huge.nlive--;
    huge.live_bytes -= c->mapped;
    if (!h) return;
    if (c->heap_prev) c->heap_prev->heap_next = c->heap_next;
    else h->huges = c->heap_next;
    if (c->heap_next) c->heap_next->heap_prev = c->heap_prev;
    h->held_bytes -= c->mapped;
}

// Unmap what has no object; if that cannot be done now, each purge tries again.
static void unreserve(char *base, size_t bytes) {
    if (qy_os_unmap(base, bytes)) return;
    qy_lock_take(&huge.lock);
    for (unsigned i = 0; i < LEFT_COUNT; i++) {
        if (huge.left[i].base) continue;
        huge.left[i].base = base;
        huge.left[i].bytes = bytes;
        break;
    }
    qy_lock_drop(&huge.lock);
}

static qy_huge_t *huge_record_new(void) {
    qy_lock_take(&huge.lock);
    qy_huge_t *c = huge.spare;
    if (c) huge.spare = c->next;
    qy_lock_drop(&huge.lock);
    if (!c && (c = qy_meta_alloc(sizeof *c)))
        atomic_store_explicit(&c->record.kind, QY_RECORD_HUGE_FREE, memory_order_relaxed);
    return c;
}

static void huge_record_delete(qy_huge_t *c) {
    qy_lock_take(&huge.lock);
    c->next = huge.spare;
    huge.spare = c;
    qy_lock_drop(&huge.lock);
}

// Address space for the record, entered in the map; with memory or without. The hint is a number: with sizes that
// cannot be had it wraps, and the wish is not granted.
static bool place(qy_huge_t *c, size_t align, size_t bytes, uintptr_t hint, bool memory) {
    char *base = memory ? qy_os_map(bytes, align, (void *)hint) : qy_os_reserve(bytes, align, (void *)hint);
    if (!base) return false;
    if (qy_map_add(&c->record, base, false) != QY_MAP_ADDED) {
        unreserve(base, bytes);
        return false;
    }
    c->mapped = bytes;
    c->zeroed = false;
    return true;
}

// Sizes that are multiples of what the map tells apart would all have the same entry, side by side. So large ones have
// a gap between them.
#define GAP_FROM ((size_t)256 << 20)
// so far the hints go down; then the kernel chooses again, where there is room by then
#define HINTS_MOST ((size_t)256 << 30)

static qy_huge_t *map_new(size_t align, size_t bytes) {
    qy_huge_t *c = huge_record_new();
    if (!c) return NULL;
    uintptr_t near = (uintptr_t)atomic_load_explicit(&huge.hint, memory_order_relaxed);
    uintptr_t top = (uintptr_t)atomic_load_explicit(&huge.top, memory_order_relaxed);
    size_t gap = bytes >= GAP_FROM ? QY_CHUNK : 0;
    uintptr_t hint = near && top - near <= HINTS_MOST ? near - qy_round_up(bytes, QY_CHUNK) - gap : 0;
    if (hint & (align - 1)) hint = 0;
    if (!place(c, align, bytes, hint, true)) {
        huge_record_delete(c);
        return NULL;
    }
    atomic_store_explicit(&huge.hint, c->record.base, memory_order_relaxed);  // a race costs a worse hint
    if (!hint || (uintptr_t)c->record.base > top)
        atomic_store_explicit(&huge.top, c->record.base, memory_order_relaxed);
    return c;
}

// Move the object's pages to a new place of `bytes`, which another record holds until they are there: this one keeps
// its identity. False: nothing has changed.
static bool move(qy_huge_t *c, size_t bytes) {
    qy_huge_t *to = huge_record_new();
    if (!to) return false;
    bool moved = place(to, QY_CHUNK, bytes, 0, false);
    if (moved) {
        qy_lock_take(&huge.lock);
        moved = qy_os_move(c->record.base, c->mapped, to->record.base, bytes);
        if (moved) qy_map_replace(&to->record, &c->record);
        else qy_map_remove(&to->record);
        qy_lock_drop(&huge.lock);
    }
    huge_record_delete(to);
    return moved;
}

// Out of the map, then out of the address space. What cannot be unmapped now (the table of mappings is full) stays in
// the map, empty if possible, and is tried again by each purge.
static bool unmap(qy_huge_t *c) {
    qy_map_remove(&c->record);
    if (qy_os_unmap(c->record.base, c->mapped)) {
        unsigned i = atomic_fetch_add_explicit(&huge.nfreed, 1, memory_order_relaxed);
        atomic_store_explicit(&huge.freed[i % FREED_COUNT], c->record.base, memory_order_relaxed);
        qy_purging_unmapped(c->mapped);
        huge_record_delete(c);
        return true;
    }
    qy_os_purge(c->record.base, c->mapped);
    qy_map_add(&c->record, c->record.base, false);  // it was there, so there is a table
    qy_lock_take(&huge.lock);
    list_add(&huge.stuck, c);
    huge.nstuck++;
    huge.stuck_bytes += c->mapped;
    qy_lock_drop(&huge.lock);
    return false;
}

void *qy_huge_alloc(qy_heap_t *h, size_t align, size_t n, bool zeroed) {
    size_t page = qy_os_page_size();
    if (n > PTRDIFF_MAX - page) return NULL;
    size_t bytes = qy_round_up(n, page);
    if (align > (size_t)PTRDIFF_MAX / 2) return NULL;
    align = qy_max(align, QY_CHUNK);
    if (h && h->limit && (bytes > h->limit || h->held_bytes > h->limit - bytes)) return NULL;
    qy_huge_t *c = map_new(align, bytes);
    if (!c) return NULL;
    qy_os_name(c->record.base, bytes, "quarry huge");
    qy_age_taken();
    qy_purging_mapped(bytes);
    c->zeroed = zeroed;
    qy_lock_take(&huge.lock);
    enter_live_locked(c, h, n);
    qy_lock_drop(&huge.lock);
    return c->record.base;
}

// An object with the pages of [from, from + bytes), and of that size; NULL: nothing has changed. `roomy`: it will grow
// to that.
static qy_huge_t *from_pages(char *from, size_t bytes, size_t roomy) {
    qy_huge_t *c = huge_record_new();
    if (!c) return NULL;
    if (place(c, QY_CHUNK, roomy, 0, false)) {
        unreserve(c->record.base + bytes, roomy - bytes);  // free address space, so that it can grow where it is
        c->mapped = bytes;
        if (qy_os_move_out(from, bytes, c->record.base)) return c;
        qy_map_remove(&c->record);
    }
    huge_record_delete(c);
    return NULL;
}

void *qy_huge_from(char *from, size_t bytes, size_t n) {
    size_t page = qy_os_page_size();
    if (n > PTRDIFF_MAX / 2) return NULL;
    // pages larger than a unit: something else may lie in the last one
    if (((uintptr_t)from | bytes) & (page - 1)) return NULL;
    // An eighth at least, as whenever one grows.
    size_t roomy = qy_max(qy_round_up(n, page), qy_round_up(bytes + bytes / 8, page));
    qy_huge_t *c = from_pages(from, bytes, roomy);
    if (!c) return NULL;
    if (qy_os_resize_in_place(c->record.base, bytes, roomy) || move(c, roomy)) {
        c->mapped = roomy;
        qy_os_name(c->record.base, roomy, "quarry huge");
        qy_lock_take(&huge.lock);
        enter_live_locked(c, NULL, n);
        qy_lock_drop(&huge.lock);
        return c->record.base;
    }
    memcpy(from, c->record.base, bytes);  // its place is still there
    unmap(c);
    return NULL;
}

static void unreserve_left(void) {
    qy_lock_take(&huge.lock);
    for (unsigned i = 0; i < LEFT_COUNT; i++)
        if (huge.left[i].base && qy_os_unmap(huge.left[i].base, huge.left[i].bytes)) huge.left[i].base = NULL;
    qy_lock_drop(&huge.lock);
}

void qy_huge_free(qy_huge_t *c) {
    qy_heap_t *h = atomic_load_explicit(&c->heap, memory_order_relaxed);
    if (h) qy_heap_lock(h);
    uint8_t live = QY_RECORD_HUGE;
    if (!atomic_compare_exchange_strong(&c->record.kind, &live, QY_RECORD_HUGE_FREE))
        qy_fatal(QY_FAULT_DOUBLE_FREE, c->record.base, "huge object");
    qy_lock_take(&huge.lock);
    leave_live_locked(c, h);
    qy_lock_drop(&huge.lock);
    if (h) qy_heap_unlock(h);
    if (c->mapped > QY_LONG_USUAL && c->mapped <= QY_LONG_MAX)
        atomic_store_explicit(&huge.again, true, memory_order_relaxed);
    if (c->zeroed) qy_clear_learn(c->record.base, c->size, true);
    unmap(c);
}

// The object's heap, if it has one, is locked.
static void resized(qy_huge_t *c, size_t mapped, size_t n) {
    qy_heap_t *h = atomic_load_explicit(&c->heap, memory_order_relaxed);
    qy_lock_take(&huge.lock);
    huge.live_bytes += mapped - c->mapped;
    if (h) h->held_bytes += mapped - c->mapped;
    c->mapped = mapped;
    c->size = n;
    qy_lock_drop(&huge.lock);
}

static void *resize(qy_huge_t *c, qy_heap_t *h, size_t n) {
    size_t page = qy_os_page_size(), have = c->mapped;
    if (n > PTRDIFF_MAX - page) return NULL;
    size_t bytes = qy_round_up(n, page);
    if (bytes <= have) {
        // A little slack stays, so that a size that goes up and down does not call the kernel each time.
        if (have - bytes > have / 8 + QY_UNIT && qy_os_unmap(c->record.base + bytes, have - bytes))
            resized(c, bytes, n);
        else resized(c, have, n);
        return c->record.base;
    }
    bool limited = h && h->limit;
    if (limited && (bytes - have > h->limit || h->held_bytes > h->limit - (bytes - have))) return NULL;
    // Grow by an eighth at least: untouched pages cost nothing, moving them does.
    bool exactly = limited || have > PTRDIFF_MAX / 2 || !QY_WITH(huge_roomy);
    size_t roomy = exactly ? bytes : qy_max(bytes, qy_round_up(have + have / 8, page));
    for (int exact = 0; exact < 2; exact++) {
        size_t to = exact ? bytes : roomy;
        if (qy_os_resize_in_place(c->record.base, have, to)) {
            resized(c, to, n);
            return c->record.base;
        }
        if (move(c, to)) {
            resized(c, to, n);
            return c->record.base;
        }
        if (roomy == bytes) break;
    }
    return NULL;
}

void *qy_huge_resize(qy_huge_t *c, size_t n) {
    qy_heap_t *h = atomic_load_explicit(&c->heap, memory_order_relaxed);
    if (h) qy_heap_lock(h);
    void *p = resize(c, h, n);
    if (h) qy_heap_unlock(h);
    return p;
}

// ---- looking ----------------------------------------------------------------------------------

qy_huge_t *qy_huge_around(const void *p) {
    qy_lock_take(&huge.lock);
    qy_huge_t *c = huge.live;
    while (c && (size_t)((const char *)p - c->record.base) >= c->mapped) c = c->next;
    qy_lock_drop(&huge.lock);
    return c;
}

bool qy_huge_comes_again(void) { return atomic_load_explicit(&huge.again, memory_order_relaxed); }

bool qy_huge_was_freed(const void *p) {
    for (unsigned i = 0; i < FREED_COUNT; i++)
        if (p && atomic_load_explicit(&huge.freed[i], memory_order_relaxed) == p) return true;
    return false;
}

int qy_huge_each(qy_heap_t *h, int (*fn)(void *p, size_t usable, void *arg), void *arg) {
    int stop = 0;
    for (qy_huge_t *c = h->huges; c && !stop; c = c->heap_next) stop = fn(c->record.base, c->mapped, arg);
    return stop;
}

void qy_huge_places(void (*fn)(const void *base, size_t bytes, void *arg), void *arg) {
    qy_lock_take(&huge.lock);
    for (qy_huge_t *c = huge.live; c; c = c->next) fn(c->record.base, c->mapped, arg);
    for (qy_huge_t *c = huge.stuck; c; c = c->next) fn(c->record.base, c->mapped, arg);
    qy_lock_drop(&huge.lock);
}

void qy_huge_release_all(qy_heap_t *h) {
    for (qy_huge_t *c; (c = h->huges);) {
        qy_lock_take(&huge.lock);
        leave_live_locked(c, h);
        atomic_store_explicit(&c->record.kind, QY_RECORD_HUGE_FREE, memory_order_relaxed);
        qy_lock_drop(&huge.lock);
        unmap(c);
    }
}

size_t qy_huge_purge(void) {
    size_t total = 0;
    unreserve_left();
    qy_lock_take(&huge.lock);
    qy_huge_t *stuck = huge.stuck;
    huge.stuck = NULL;
    huge.nstuck = 0;
    huge.stuck_bytes = 0;
    qy_lock_drop(&huge.lock);
    while (stuck) {
        qy_huge_t *c = stuck;
        size_t bytes = c->mapped;
        stuck = c->next;
        if (unmap(c)) total += bytes;
    }
    return total;
}

size_t qy_huge_live_bytes(void) { return atomic_load_explicit(&huge.live_bytes, memory_order_relaxed); }
size_t qy_huge_stuck_bytes(void) { return atomic_load_explicit(&huge.stuck_bytes, memory_order_relaxed); }

void qy_huge_stats(size_t *ret_count, size_t *ret_live, size_t *ret_stuck) {
    qy_lock_take(&huge.lock);
    *ret_count = huge.nlive;
    *ret_live = huge.live_bytes;
    *ret_stuck = huge.stuck_bytes;
    qy_lock_drop(&huge.lock);
}

static const char *check_list(const qy_huge_t *list, uint8_t kind, size_t count, size_t bytes) {
    size_t n = 0, mapped = 0;
    for (const qy_huge_t *c = list; c; c = c->next, n++) {
        if (c->next && c->next->prev != c) return "a list of huge objects is broken";
        if (atomic_load_explicit(&c->record.kind, memory_order_relaxed) != kind)
            return "a huge object is on the wrong list";
        if (kind == QY_RECORD_HUGE && c->size > c->mapped) return "a huge object is larger than its mapping";
        if (qy_map_record(c->record.base) != &c->record) return "a huge object is not in the map";
        mapped += c->mapped;
    }
    return n == count && mapped == bytes ? NULL : "huge objects are miscounted";
}

const char *qy_huge_check(void) {
    qy_lock_take(&huge.lock);
    const char *wrong = check_list(huge.live, QY_RECORD_HUGE, huge.nlive, huge.live_bytes);
    if (!wrong) wrong = check_list(huge.stuck, QY_RECORD_HUGE_FREE, huge.nstuck, huge.stuck_bytes);
    qy_lock_drop(&huge.lock);
    return wrong;
}

qy_lock_t *qy_huge_lock(void) { return &huge.lock; }
