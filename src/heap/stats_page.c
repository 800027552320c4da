// SPDX-License-Identifier: MIT
// stats_page.c: see stats_page.h.
#include "heap/stats_page.h"

#include "heap/atfork.h"
#include "heap/cache.h"
#include "heap/depot.h"
#include "heap/heaps.h"
#include "heap/huge.h"
#include "heap/lists.h"
#include "heap/lookup.h"
#include "heap/helper.h"
#include "heap/sizeclass.h"
#include "heap/slab.h"
#include "heap/stats_cache.h"
#include "heap/sums.h"
#include "os/os.h"
#include "pages/arena.h"
#include "pages/chunk.h"
#include "pages/chunk_state.h"
#include "pages/map.h"
#include "pages/meta.h"
#include "rt/opts.h"
#include "rt/stats_page.h"
#include "stacks/own.h"

#include <stdatomic.h>

#define BUDGET 500                      // one part in so many of the time is spent
#define HURRY 100                       // one in so many while the heap changes its size
#define BURST 128                       // so many writes may be ahead of the budget, where much moves at once
#define PART 32                         // one in so many of the live bytes is much
#define SUMS_NS UINT64_C(1000000)       // not more often than this
#define CLASSES_NS UINT64_C(100000000)  // nor this
#define SLEEPERS_NS UINT64_C(500000000)
#define STEP_SLABS 64  // walked under one hold of a heap's lock
#define TRIES 1000     // to get a heap's lock: some 50 us

typedef quarry_stats_page_class_t class_t;

// What was last written, and what it cost. Ordinary memory: a child goes on with what its parent knew.
static struct {
    qy_lock_t lock;
    uint64_t sums_ns, sums_cost, classes_ns, classes_cost;  // [lock]
    size_t sums_mapped, sums_dirty, classes_mapped;         // [lock] mapped bytes then, and those of free pages
    size_t sums_live;                                       // [lock] live bytes then
    uint64_t hurried_ns;                                    // [lock] until then all time for hurry is spent
    _Atomic size_t moved;                                   // bytes that threads have moved since
    size_t fresh;                                           // [lock] bytes of slabs never given out, by the last walk
    size_t loose;                                           // [lock] likewise of 8-byte blocks in the hands of threads
    uint64_t sleepers_ns, sleepers_cost;                    // [lock] when the caches of those who sleep were counted
    uint8_t row_of[QY_CLASS_COUNT];                         // [lock] during a walk: 1 + row of a class
} last_written;

static size_t distance(size_t a, size_t b) { return a > b ? a - b : b - a; }
static size_t mapped_now(void) { return qy_units_mapped_bytes() + qy_huge_live_bytes() + qy_huge_stuck_bytes(); }
static size_t dirty_now(void) { return qy_units_dirty_bytes() + qy_huge_stuck_bytes(); }

// A heap's lock, unless it is held for long: by a walk that calls out, or by a thread that does not run.
static bool lock_soon(qy_heap_t *h) {
    for (int i = 0; i < TRIES; i++) {
        if (qy_lock_is_out(&h->lock)) return false;
        if (qy_heap_trylock(h)) return true;
        qy_pause();
    }
    return false;
}

// ---- sums -------------------------------------------------------------------------------------------------

static bool add_heaps(qy_sums_t *s) {
    for (qy_heap_t *h = qy_heap_first(); h; h = h->next) {
        if (!lock_soon(h)) return false;
        qy_sums_add_heap(s, h);
        qy_lock_drop(&h->lock);
    }
    return true;
}

// Of the two tables only what blocks lie behind is touched, whole pages: 8 bytes of tags for each 4 KiB, a pointer for
// each chunk, and the ends of both.
static size_t tables_bytes(void) {
    size_t page = qy_os_page_size(), mapped = qy_units_mapped_bytes();
    size_t tags = mapped / QY_TAG_PAGE * sizeof(qy_tag_t), chunks = mapped / QY_CHUNK * sizeof(void *);
    return qy_min(qy_round_up(tags, page) + qy_round_up(chunks, page) + 2 * page, qy_map_bytes());
}

static void add_rest(qy_sums_t *s) {
    size_t blocks;
    qy_sums_set_rest(s);
    s->metadata_bytes += tables_bytes();
    s->cached_bytes += qy_stats_cached(&blocks);
    s->cached_blocks += blocks;
    s->cached_bytes += last_written.loose;
    s->cached_blocks += last_written.loose / QY_TINY;
    s->slab_fresh_bytes = last_written.fresh;
    s->fresh_at_ns = last_written.classes_ns;
}

static size_t live_of(const qy_sums_t *s) {
    size_t out = s->slabs_bytes - s->slab_free_bytes - s->slab_mailed_bytes - s->slab_fresh_bytes;
    // The sums are read one after the other, while others work.
    return (out > s->cached_bytes && out <= s->slabs_bytes ? out - s->cached_bytes : 0) + s->run_live_bytes +
           s->huge_live_bytes;
}

static void write_sums(quarry_stats_page_heap_t *page) {
    uint64_t begin = qy_os_now_ns();
    size_t moved = atomic_load_explicit(&last_written.moved, memory_order_relaxed);
    qy_sums_t sums = {.at_ns = begin};
    if (!add_heaps(&sums)) {
        qy_stats_add(&page->skipped, 1);
        return;
    }
    add_rest(&sums);
    uint64_t turn = __atomic_load_n(&page->turn, __ATOMIC_RELAXED) + 1;
    uint64_t *to = (uint64_t *)&page->sums[turn & 1];
    const uint64_t *from = (const uint64_t *)&sums;
    // Whoever has seen one of these words sees at least the turn before, so a reader of this copy notices.
    __atomic_thread_fence(__ATOMIC_RELEASE);
    for (size_t i = 0; i < sizeof sums / sizeof *to; i++) qy_stats_put(&to[i], from[i]);
    __atomic_store_n(&page->turn, turn, __ATOMIC_RELEASE);
    last_written.sums_ns = qy_os_now_ns();
    last_written.sums_cost = last_written.sums_ns - begin;
    last_written.sums_mapped = mapped_now();
    last_written.sums_dirty = dirty_now();
    last_written.sums_live = live_of(&sums);
    atomic_fetch_sub_explicit(&last_written.moved, moved, memory_order_relaxed);
}

// ---- where ------------------------------------------------------------------------------------------------

typedef struct places {
    quarry_stats_page_heap_t *page;
    unsigned copy, rows;
    size_t missing;
    uint64_t kind;
} places_t;

static void add_place(const void *base, size_t bytes, void *arg) {
    places_t *p = arg;
    if (p->rows == QUARRY_STATS_PAGE_RANGES) {
        p->missing += bytes;
        return;
    }
    quarry_stats_page_range_t *r = &p->page->ranges[p->rows++][p->copy];
    qy_stats_put(&r->base, (uintptr_t)base);
    qy_stats_put(&r->bytes, bytes);
    qy_stats_put(&r->kind, p->kind);
}

static bool add_meta(const void *base, size_t bytes, void *arg) {
    add_place(base, bytes, arg);
    return true;
}

// Tables and arenas are few, so they come first.
static void write_places(quarry_stats_page_heap_t *page, unsigned copy) {
    places_t p = {.page = page, .copy = copy, .kind = QUARRY_STATS_PAGE_RANGE_META};
    qy_map_each(add_place, &p);
    qy_meta_each(add_meta, &p);
    qy_own_each(add_place, &p);  // of the sampler
    p.kind = QUARRY_STATS_PAGE_RANGE_BLOCKS;
    qy_lock_take(&qy_units.lock);
    for (const qy_arena_t *a = qy_units.arenas; a; a = a->next) add_place(a->base, (size_t)a->chunks * QY_CHUNK, &p);
    qy_lock_drop(&qy_units.lock);
    p.kind = QUARRY_STATS_PAGE_RANGE_HUGE;
    qy_huge_places(add_place, &p);
    if (atomic_load_explicit(&qy_lookup_guards, memory_order_acquire))
        add_place((const void *)atomic_load_explicit(&qy_guard_base, memory_order_relaxed), qy_guard_bytes, &p);
    qy_stats_put(&page->range_rows[copy], p.rows);
    qy_stats_put(&page->range_missing_bytes[copy], p.missing);
}

// ---- classes ----------------------------------------------------------------------------------------------

typedef struct walk {
    quarry_stats_page_heap_t *page;
    unsigned copy, rows;
    size_t fresh, loose;
} walk_t;

static class_t *row_of(walk_t *w, unsigned c) {
    unsigned row = last_written.row_of[c];
    if (!row) {
        last_written.row_of[c] = (uint8_t)(row = ++w->rows);
        class_t *r = &w->page->classes[row - 1][w->copy];
        __atomic_store_n(&r->number, c, __ATOMIC_RELAXED);
        __atomic_store_n(&r->block_bytes, (uint32_t)qy_class_size[c], __ATOMIC_RELAXED);
        for (uint64_t *word = &r->slabs; word < (uint64_t *)(r + 1); word++) qy_stats_put(word, 0);
    }
    return &w->page->classes[row - 1][w->copy];
}

static void add_slab(walk_t *w, const qy_slab_t *s) {
    class_t *r = row_of(w, s->cls);
    qy_slab_sums_t has = qy_slab_sums(s);
    qy_stats_add(&r->slabs, 1);
    qy_stats_add(&r->slabs_bytes, has.bytes);
    qy_stats_add(&r->out_blocks, has.out + has.loose);  // as blocks in threads' lists are
    qy_stats_add(&r->free_blocks, has.home - has.loose);
    qy_stats_add(&r->cached_blocks, has.loose);
    qy_stats_add(&r->purged_blocks, has.purged);
    qy_stats_add(&r->fresh_bytes, has.fresh);
    w->fresh += has.fresh;
    w->loose += has.loose * has.block_bytes;
}

static void add_cached(void *arg, unsigned c, size_t blocks) { qy_stats_add(&row_of(arg, c)->cached_blocks, blocks); }

// In steps, if the heap's mark for walks that let go of the lock is ours; else its owner waits for the whole of it.
static bool walk_heap(walk_t *w, qy_heap_t *h, bool in_steps) {
    if (!lock_soon(h)) return false;
    qy_lists_unpark(h);  // nobody else will count what is parked
    qy_slab_t *s = h->all;
    while (s) {
        for (unsigned i = 0; s && (i < STEP_SLABS || !in_steps); s = s->all_next, i++)
            if (s->kind == QY_SPAN_SLAB) add_slab(w, s);
        if (!s) break;
        h->purge_at = s;
        qy_lock_drop(&h->lock);
        if (!lock_soon(h)) return false;
        s = h->purge_at;
    }
    if (in_steps) h->purge_at = NULL;
    for (unsigned c = 1; h->depot_bytes && c < QY_CLASS_COUNT; c++)
        if (qy_depot_blocks(h, c)) add_cached(w, c, qy_depot_blocks(h, c));
    qy_lock_drop(&h->lock);
    return true;
}

static void write_classes(quarry_stats_page_heap_t *page) {
    qy_helper_hold_t hold = qy_helper_hold();
    if (hold == QY_HELPER_BUSY) return;
    uint64_t begin = qy_os_now_ns(), turn = __atomic_load_n(&page->class_turn, __ATOMIC_RELAXED) + 1;
    walk_t w = {.page = page, .copy = turn & 1};
    for (unsigned c = 0; c < QY_CLASS_COUNT; c++) last_written.row_of[c] = 0;
    __atomic_thread_fence(__ATOMIC_RELEASE);  // as in write_sums
    bool done = true;
    for (qy_heap_t *h = qy_heap_first(); h && done; h = h->next) done = walk_heap(&w, h, hold == QY_HELPER_HELD);
    if (hold == QY_HELPER_HELD) qy_helper_let_go();
    uint64_t end = qy_os_now_ns();
    last_written.classes_cost = end - begin;
    if (!done) {
        qy_stats_add(&page->skipped, 1);
        return;
    }
    qy_stats_cached_of(add_cached, &w);
    write_places(page, w.copy);
    qy_stats_put(&page->class_rows[w.copy], w.rows);
    qy_stats_put(&page->class_at_ns[w.copy], end);
    __atomic_store_n(&page->class_turn, turn, __ATOMIC_RELEASE);
    last_written.classes_ns = end;
    last_written.classes_mapped = mapped_now();
    last_written.fresh = w.fresh;
    last_written.loose = w.loose;
}

// ---- when -------------------------------------------------------------------------------------------------

// A program may move much within a moment, and then sleep: nobody would look again. So as much time again is saved up.
static bool may_hurry(uint64_t now) {
    uint64_t cost = last_written.sums_cost * BUDGET, saved = cost * BURST;
    uint64_t until = qy_max(last_written.hurried_ns, now > saved ? now - saved : 0) + cost;
    if (until > now) return false;
    last_written.hurried_ns = until;
    return true;
}

static bool sums_due(uint64_t now) {
    uint64_t passed = now - last_written.sums_ns;
    if (passed >= qy_max(SUMS_NS, last_written.sums_cost * BUDGET)) return true;
    bool changed = distance(mapped_now(), last_written.sums_mapped) >= QY_STATS_PAGE_MOVED ||
                   distance(dirty_now(), last_written.sums_dirty) >= QY_STATS_PAGE_MOVED;
    if (changed && passed >= last_written.sums_cost * HURRY) return true;
    size_t moved = atomic_load_explicit(&last_written.moved, memory_order_relaxed);
    return moved >= qy_max(QY_STATS_PAGE_MOVED, last_written.sums_live / PART) && may_hurry(now);
}

static bool classes_due(uint64_t now) {
    uint64_t passed = now - last_written.classes_ns;
    if (passed >= qy_max(CLASSES_NS, last_written.classes_cost * BUDGET)) return true;
    return passed >= last_written.classes_cost * HURRY &&
           distance(mapped_now(), last_written.classes_mapped) >= mapped_now() / 8;
}

static bool sleepers_due(uint64_t now) {
    const qy_thread_t *t = qy_thread_first();
    if (!t || !t->all_next) return false;  // there has been one thread, which does not sleep
    return now - last_written.sleepers_ns >= qy_max(SLEEPERS_NS, last_written.sleepers_cost * BUDGET);
}

QY_NOINLINE static void count_sleepers(void) {
    uint64_t begin = qy_os_now_ns();
    qy_stats_count_sleepers();
    last_written.sleepers_ns = qy_os_now_ns();
    last_written.sleepers_cost = last_written.sleepers_ns - begin;
}

void qy_stats_page_look(size_t moved) {
    atomic_fetch_add_explicit(&last_written.moved, moved, memory_order_relaxed);
    // Somebody else is at it; or this thread is, and was interrupted by a signal handler that allocates.
    if (!qy_lock_try(&last_written.lock)) return;
    quarry_stats_page_t *page = qy_stats_page();
    if (page) {
        uint64_t now = qy_os_now_ns();
        if (sleepers_due(now)) count_sleepers();
        if (classes_due(now)) write_classes(&page->heap);
        if (sums_due(now)) write_sums(&page->heap);
    }
    qy_lock_drop(&last_written.lock);
}

void qy_stats_page_round(void) {
    if (!qy_lock_try(&last_written.lock)) return;
    quarry_stats_page_t *page = qy_stats_page();
    if (page) {
        // Its own processor's time, and perhaps the last look before all sleep.
        count_sleepers();
        if (qy_os_now_ns() - last_written.classes_ns >= last_written.classes_cost * HURRY) write_classes(&page->heap);
        write_sums(&page->heap);
    }
    qy_lock_drop(&last_written.lock);
}

void qy_stats_page_begin(void) {
    qy_stats_page_before(qy_atfork_needed);
    qy_stats_page_start(QUARRY_STATS_PAGE_HEAP, NULL);
    qy_stats_page_look(0);
}

void qy_stats_page_after_fork(bool inside) {
    // A signal handler forked, and this thread was writing to the page: it goes on when the handler returns.
    if (qy_lock_is_mine(&last_written.lock)) {
        qy_stats_page_in_child(QUARRY_STATS_PAGE_HEAP, false);
        return;
    }
    qy_lock_reset(&last_written.lock);
    bool page = qy_stats_page_in_child(QUARRY_STATS_PAGE_HEAP, !inside && mapped_now() >= QY_STATS_PAGE_CHILD_LARGE);
    // its page is empty, now or when it comes
    last_written.classes_ns = last_written.sums_ns = last_written.sleepers_ns = 0;
    if (!page || inside || !qy_lock_try(&last_written.lock)) return;
    // the list of classes takes longer than a child that executes another program should wait
    write_sums(&qy_stats_page()->heap);
    qy_lock_drop(&last_written.lock);
}
