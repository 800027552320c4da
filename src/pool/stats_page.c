// SPDX-License-Identifier: MIT
// stats_page.c: see stats_page.h.
#include "pool/stats_page.h"

#include <stdatomic.h>
#include <string.h>

#include "rt/stats_page.h"

typedef quarry_stats_page_pool_t pool_page_entry_t;

// pool_page_entry_t.turn
#define WRITING QY_STATS_PAGE_WRITING
#define TAKEN QY_STATS_PAGE_TAKEN
#define TURN UINT64_C(4)

#define TAKING UINT32_MAX  // qy_pool_info_t.shown_at

static bool pool_page_begin(pool_page_entry_t *e, uint64_t turn) {
    if (!__atomic_compare_exchange_n(&e->turn, &turn, turn | WRITING, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return false;
    __atomic_thread_fence(__ATOMIC_RELEASE);  // whoever sees a word of what follows sees WRITING, or a later turn
    return true;
}
// `number`: of the page when it was begun. If a signal handler forked since, in this child the entry is nobody's.
static void pool_page_end(pool_page_entry_t *e, uint32_t number, bool taken) {
    taken &= number == qy_stats_page_number();
    uint64_t turn = __atomic_load_n(&e->turn, __ATOMIC_RELAXED);
    __atomic_store_n(&e->turn, ((turn & ~(WRITING | TAKEN)) + TURN) | (taken ? TAKEN : 0), __ATOMIC_RELEASE);
}

// Texts are words to whoever reads them meanwhile.
static void put_text(char *to, size_t bytes, const char *text) {
    char padded[QUARRY_STATS_PAGE_NAME_BYTES] = {0};
    for (size_t i = 0; i < bytes - 1 && text[i]; i++) padded[i] = text[i];
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, padded + i, sizeof word);
        qy_stats_put((uint64_t *)(void *)(to + i), word);
    }
}

// `ask`: the kind, too; the caller is using the pool.
static void write_numbers(pool_page_entry_t *e, quarry_pool_t *pool, bool ask, uint64_t now) {
    const qy_pool_info_t *i = pool->info;
#define LOAD(field) atomic_load_explicit(&i->field, memory_order_relaxed)
    quarry_pool_stats_t s = {.held_bytes = LOAD(held),
        .peak_held_bytes = LOAD(peak_held),
        .requested_bytes = LOAD(requested),
        .allocs = LOAD(allocs),
        .frees = LOAD(frees),
        .resizes = LOAD(resizes)};
    bool known = ask && pool->ops->stats && !(pool->mode & QY_MODE_OBSERVED) && (!i->stats_lock || pool->mode);
    if (known) pool->ops->stats(pool, &s);
    else if (!(pool->mode & QY_MODE_COUNTED))
        s.requested_bytes = s.allocs = s.frees = s.resizes = QUARRY_STATS_PAGE_UNKNOWN;
    qy_stats_put(&e->at_ns, now);
    qy_stats_put(&e->held_bytes, s.held_bytes);
    qy_stats_put(&e->peak_held_bytes, s.peak_held_bytes);
    qy_stats_put(&e->limit_bytes, LOAD(limit));
    qy_stats_put(&e->used_bytes, known ? s.used_bytes : QUARRY_STATS_PAGE_UNKNOWN);
    qy_stats_put(&e->requested_bytes, s.requested_bytes);
    qy_stats_put(&e->allocs, s.allocs);
    qy_stats_put(&e->frees, s.frees);
    qy_stats_put(&e->resizes, s.resizes);
    qy_stats_put(&e->slow_calls, LOAD(slow_calls));
    qy_stats_put(&e->chunk_gets, LOAD(chunk_gets));
    qy_stats_put(&e->chunk_puts, LOAD(chunk_puts));
    qy_stats_put(&e->slow_ns, LOAD(slow_ns));
#undef LOAD
}

// An entry of its own, begun: its index + 1. 0: all are taken.
static uint32_t take_entry(quarry_stats_page_pools_t *page, const quarry_pool_t *pool) {
    static _Atomic uint32_t next;  // where the last one was free: a hint
    uint32_t from = atomic_load_explicit(&next, memory_order_relaxed);
    for (uint32_t i = 0; i < QUARRY_STATS_PAGE_POOL_COUNT; i++) {
        uint32_t at = (from + i) % QUARRY_STATS_PAGE_POOL_COUNT;
        pool_page_entry_t *e = &page->pools[at];
        uint64_t turn = __atomic_load_n(&e->turn, __ATOMIC_RELAXED);
        if ((turn & (WRITING | TAKEN)) || !pool_page_begin(e, turn)) continue;
        atomic_store_explicit(&next, at + 1, memory_order_relaxed);
        put_text(e->kind, sizeof e->kind, pool->ops->kind);
        put_text(e->name, sizeof e->name, pool->info->name);
        return at + 1;
    }
    return 0;
}

// Those without an entry are one sum; `held` is this one's part of it from now on.
static void show_among_others(quarry_stats_page_pools_t *page, qy_pool_info_t *info, size_t held, bool counts) {
    size_t before = atomic_exchange_explicit(&info->shown_held, held, memory_order_relaxed);
    __atomic_fetch_add(&page->others_held_bytes, (uint64_t)held - (uint64_t)before, __ATOMIC_RELAXED);
    if (counts) __atomic_fetch_add(&page->others, before ? UINT64_MAX : 1, __ATOMIC_RELAXED);
}

// The pool's first words on this page: two threads may come at once, and one of them is told to leave it to the other.
static bool appear(qy_pool_info_t *info, uint32_t number) {
    uint32_t on = atomic_load_explicit(&info->shown_on, memory_order_acquire);
    if (on == number) return true;
    if (!atomic_compare_exchange_strong(&info->shown_on, &on, number)) return false;
    atomic_store_explicit(&info->shown_at, 0, memory_order_relaxed);
    atomic_store_explicit(&info->shown_held, 0, memory_order_relaxed);
    return true;
}

// The pool has no entry. Meanwhile shown_at is TAKING, and no other thread comes here.
static void show_first(quarry_stats_page_pools_t *page, quarry_pool_t *pool, size_t held, bool ask, uint64_t now) {
    qy_pool_info_t *info = pool->info;
    uint32_t number = atomic_load_explicit(&info->shown_on, memory_order_relaxed);
    size_t among_others = atomic_load_explicit(&info->shown_held, memory_order_relaxed);
    uint32_t at = take_entry(page, pool);
    if (at) {
        write_numbers(&page->pools[at - 1], pool, ask, now);
        pool_page_end(&page->pools[at - 1], number, true);
        if (among_others) show_among_others(page, info, 0, true);
    } else {
        show_among_others(page, info, held, !among_others != !held);
    }
    atomic_store_explicit(&info->shown_at, at, memory_order_release);
}

static void show_on(quarry_stats_page_pools_t *page, quarry_pool_t *pool, bool ask, uint64_t now) {
    qy_pool_info_t *info = pool->info;
    size_t held = atomic_load_explicit(&info->held, memory_order_relaxed);
    uint32_t number = qy_stats_page_number();
    if (!appear(info, number)) return;
    uint32_t at = atomic_load_explicit(&info->shown_at, memory_order_acquire);
    if (at == 0 && atomic_compare_exchange_strong(&info->shown_at, &at, TAKING)) {
        show_first(page, pool, held, ask, now);
    } else if (at && at != TAKING) {
        pool_page_entry_t *e = &page->pools[at - 1];
        uint64_t turn = __atomic_load_n(&e->turn, __ATOMIC_RELAXED);
        if ((turn & (WRITING | TAKEN)) != TAKEN || !pool_page_begin(e, turn)) return;
        write_numbers(e, pool, ask, now);
        pool_page_end(e, number, true);
    }
}

static void show(quarry_pool_t *pool, bool ask, uint64_t now) {
    quarry_stats_page_t *page = qy_stats_page();
    if (page) show_on(&page->pools, pool, ask, now);
}

static void hide_on(quarry_stats_page_pools_t *page, qy_pool_info_t *info) {
    if (atomic_load_explicit(&info->shown_on, memory_order_relaxed) != qy_stats_page_number()) return;
    uint32_t at = atomic_load_explicit(&info->shown_at, memory_order_relaxed);
    if (at) {
        pool_page_entry_t *e = &page->pools[at - 1];
        uint64_t turn = __atomic_load_n(&e->turn, __ATOMIC_RELAXED);
        if ((turn & (WRITING | TAKEN)) == TAKEN && pool_page_begin(e, turn))
            pool_page_end(e, qy_stats_page_number(), false);
    } else if (atomic_load_explicit(&info->shown_held, memory_order_relaxed)) {
        show_among_others(page, info, 0, true);
    }
}

void qy_pool_hide(quarry_pool_t *pool) {
    quarry_stats_page_t *page = qy_stats_page();
    if (page) hide_on(&page->pools, pool->info);
}

void qy_pool_show(quarry_pool_t *pool, size_t bytes, uint64_t now) {
    if (!qy_stats_page_moved(bytes)) return;
    if (QY_UNLIKELY(qy_pools_unshown())) qy_pools_show();
    show(pool, true, now);
}

void qy_pool_show_held(quarry_pool_t *pool, uint64_t now) { show(pool, false, now); }
