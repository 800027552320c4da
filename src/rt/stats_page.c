// SPDX-License-Identifier: MIT
// stats_page.c: see stats_page.h.
#include "rt/stats_page.h"

#include <stdatomic.h>

#include "base/num.h"
#include "os/mapfile.h"
#include "os/os.h"
#include "os/process.h"
#include "os/share.h"
#include "rt/lock.h"
#include "rt/opts.h"

// In a page of its own that children see empty: so they begin anew.
typedef struct wiped {
    _Atomic(quarry_stats_page_t *) page;
    _Atomic size_t moved;  // while there is no page
    _Atomic bool tried;    // there is one, or there will be none
} wiped_t;

static struct {
    qy_lock_t lock;
    _Atomic(wiped_t *) wiped;  // made once
    _Atomic uint32_t number;   // of pages made so far
    _Atomic uint32_t parts;    // that write to it; 0: not started, or not wanted
    _Atomic size_t moved;      // before there is a wiped page
    _Atomic bool denied;       // nor will there be one
    _Atomic(void (*)(void)) made;
    _Atomic unsigned writing;     // how many threads are writing to it
    quarry_stats_page_t *newest;  // [lock] where it was, also for a child in which it is no more
} state;

qy_lock_t *qy_stats_page_lock(void) { return &state.lock; }

quarry_stats_page_t *qy_stats_page(void) {
    wiped_t *w = atomic_load_explicit(&state.wiped, memory_order_acquire);
    return w ? atomic_load_explicit(&w->page, memory_order_acquire) : NULL;
}

uint32_t qy_stats_page_number(void) { return atomic_load_explicit(&state.number, memory_order_relaxed); }

static wiped_t *wiped_new(void) {
    size_t page = qy_os_page_size();
    wiped_t *w = qy_os_map(page, page, NULL);
    if (w && !qy_os_wipe_on_fork(w, page)) {
        qy_os_unmap(w, page);
        w = NULL;
    }
    return w;
}

static void fill(quarry_stats_page_t *p) {
    static const char version[] = QY_VERSION;
    _Static_assert(sizeof version <= sizeof p->head.library, "version");
    for (size_t i = 0; i < sizeof version; i++) p->head.library[i] = version[i];
    p->head.version = QUARRY_STATS_PAGE_VERSION;
    p->head.bytes = sizeof *p;
    p->head.pid = qy_os_process_id();
    p->head.born_ns = qy_os_now_ns();
    p->head.page_bytes = (uint32_t)qy_os_page_size();
    p->head.heap_at = offsetof(quarry_stats_page_t, heap);
    p->head.sums_bytes = sizeof p->heap.sums[0];
    p->head.class_count = QUARRY_STATS_PAGE_CLASSES;
    p->head.class_bytes = sizeof p->heap.classes[0][0];
    p->head.range_count = QUARRY_STATS_PAGE_RANGES;
    p->head.range_bytes = sizeof p->heap.ranges[0][0];
    p->head.pools_at = offsetof(quarry_stats_page_t, pools);
    p->head.pool_count = QUARRY_STATS_PAGE_POOL_COUNT;
    p->head.pool_bytes = sizeof p->pools.pools[0];
    __atomic_store_n(&p->head.parts, atomic_load(&state.parts), __ATOMIC_RELAXED);
    __atomic_store_n(&p->head.magic, QUARRY_STATS_PAGE_MAGIC, __ATOMIC_RELEASE);
}

// NULL: it was tried before, or cannot be.
static quarry_stats_page_t *make_locked(void) {
    wiped_t *w = atomic_load_explicit(&state.wiped, memory_order_relaxed);
    if (!w && !(w = wiped_new())) {
        atomic_store(&state.denied, true);
        return NULL;
    }
    atomic_store_explicit(&state.wiped, w, memory_order_release);
    quarry_stats_page_t *p = atomic_exchange(&w->tried, true) ? NULL : qy_os_share(sizeof *p);
    if (!p) return NULL;
    fill(p);
    state.newest = p;
    atomic_fetch_add(&state.number, 1);
    atomic_store_explicit(&w->page, p, memory_order_release);
    return p;
}

// Not waited for: a slow path has no time, and in a child the lock may be a thread's that is not there.
static bool make(void) {
    if (!qy_lock_try(&state.lock)) return false;
    // A handler that forks would leave a child which goes on here with a page that it does not have.
    uint64_t before = qy_os_signals_keep_out();
    bool new = make_locked() != NULL;
    qy_os_signals_let_in(before);
    qy_lock_drop(&state.lock);
    void (*made)(void) = atomic_load(&state.made);
    if (new &&made) made();
    return qy_stats_page() != NULL;
}

void qy_stats_page_start(uint32_t part, void (*made)(void)) {
    if (!qy_opts.stats_page) return;
    if (made) atomic_store(&state.made, made);
    uint32_t parts = atomic_fetch_or(&state.parts, part) | part;
    if (!qy_opts.purge_thread) make();
    quarry_stats_page_t *p = qy_stats_page();
    if (p) __atomic_store_n(&p->head.parts, parts, __ATOMIC_RELAXED);
}

bool qy_stats_page_moved(size_t bytes) {
    wiped_t *w = atomic_load_explicit(&state.wiped, memory_order_acquire);
    if (QY_LIKELY(w && atomic_load_explicit(&w->page, memory_order_acquire))) return true;
    if (!atomic_load(&state.parts) || atomic_load(&state.denied) || (w && atomic_load(&w->tried)) || !qy_opts.purge_thread) return false;
    return atomic_fetch_add(w ? &w->moved : &state.moved, bytes) + bytes >= QY_STATS_PAGE_MIN && make();
}

void qy_stats_page_writing(void) { atomic_fetch_add_explicit(&state.writing, 1, memory_order_relaxed); }

// In a child the count may have begun anew since.
void qy_stats_page_written(void) {
    unsigned n = atomic_load_explicit(&state.writing, memory_order_relaxed);
    while (n && !atomic_compare_exchange_weak_explicit(&state.writing, &n, n - 1, memory_order_relaxed, memory_order_relaxed)) {}
}

bool qy_stats_page_in_child(bool large) {
    if (qy_stats_page()) return true;
    // The writer may be this thread, which will go on with an address where nothing is: something must be there.
    if (atomic_exchange(&state.writing, 0) && state.newest) qy_os_map_at(state.newest, qy_round_up(sizeof *state.newest, qy_os_page_size()), -1, 0, QY_MAP_WRITE);
    return large && atomic_load(&state.parts) && qy_opts.purge_thread && make();
}
