// SPDX-License-Identifier: MIT
// stats_page.c: see stats_page.h.
#include "rt/stats_page.h"

#include <stdatomic.h>

#include "os/os.h"
#include "rt/opts.h"

static quarry_stats_page_t page __attribute__((aligned(QUARRY_STATS_PAGE_ALIGN)));
quarry_stats_page_sampler_t qy_stats_sampler;

enum { CLOSED,
    OPENING,  // by one thread
    OPEN };

static struct {
    _Atomic uint32_t phase;
    _Atomic uint32_t number;  // of times it was opened, by this process and its ancestors
    _Atomic uint32_t parts;   // that write to it; 0: not started, or not wanted
    _Atomic uint32_t reset;   // which parts have told of the newest fork
    _Atomic int pid;
    _Atomic size_t moved;  // while it is closed
    _Atomic(void (*)(void)) made;
    _Atomic(void (*)(void)) before;
} stats_state = {.reset = UINT32_MAX};

quarry_stats_page_t *qy_stats_page(void) {
    return atomic_load_explicit(&stats_state.phase, memory_order_acquire) == OPEN ? &page : NULL;
}

uint32_t qy_stats_page_number(void) { return atomic_load_explicit(&stats_state.number, memory_order_relaxed); }

// What an ancestor wrote is no longer valid. Numbers are not wiped: a thread that a forking signal handler interrupted
// may go on with them. An entry that is being written is left to its writer, which finds that the page's number has
// changed.
static void empty(void) {
    qy_stats_put(&page.heap.turn, 0);
    qy_stats_put(&page.heap.class_turn, 0);
    qy_stats_put(&page.pools.others, 0);
    qy_stats_put(&page.pools.others_held_bytes, 0);
    for (size_t i = 0; i < QUARRY_STATS_PAGE_POOL_COUNT; i++) {
        uint64_t turn = __atomic_load_n(&page.pools.pools[i].turn, __ATOMIC_RELAXED);
        if (turn) qy_stats_put(&page.pools.pools[i].turn, turn & QY_STATS_PAGE_WRITING);
    }
}

static void fill_head(quarry_stats_page_head_t *h) {
    static const char version[] = QY_VERSION;
    int pid = atomic_load(&stats_state.pid);
    __atomic_store_n(&h->pid, 0, __ATOMIC_RELAXED);
    _Static_assert(sizeof version <= sizeof h->library, "version");
    for (size_t i = 0; i < sizeof version; i++) h->library[i] = version[i];
    h->version = QUARRY_STATS_PAGE_VERSION;
    h->bytes = sizeof page;
    h->born_ns = qy_os_now_ns();
    h->page_bytes = (uint32_t)qy_os_page_size();
    h->heap_at = offsetof(quarry_stats_page_t, heap);
    h->sums_bytes = sizeof page.heap.sums[0];
    h->class_count = QUARRY_STATS_PAGE_CLASSES;
    h->class_bytes = sizeof page.heap.classes[0][0];
    h->range_count = QUARRY_STATS_PAGE_RANGES;
    h->range_bytes = sizeof page.heap.ranges[0][0];
    h->pools_at = offsetof(quarry_stats_page_t, pools);
    h->pool_count = QUARRY_STATS_PAGE_POOL_COUNT;
    h->pool_bytes = sizeof page.pools.pools[0];
    if (atomic_load(&stats_state.parts) & QUARRY_STATS_PAGE_HEAP) h->sampler_at = (uintptr_t)&qy_stats_sampler;
    h->sampler_bytes = sizeof qy_stats_sampler;
    __atomic_store_n(&h->parts, atomic_load(&stats_state.parts), __ATOMIC_RELAXED);
    __atomic_store_n(&h->magic, QUARRY_STATS_PAGE_MAGIC, __ATOMIC_RELEASE);
    // Last. If a signal handler has forked since the beginning, and the child's page was opened by then, it has the
    // child's.
    int32_t nobody = 0;
    __atomic_compare_exchange_n(&h->pid, &nobody, pid, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

// Nobody waits for another thread: it may be one that does not exist in this child. In a child whose parent was
// interrupted here by the handler that forked, the phase has changed, and the page is opened anew.
static bool open_page(void) {
    void (*before)(void) = atomic_load_explicit(&stats_state.before, memory_order_relaxed);
    uint32_t phase = CLOSED;
    if (before) before();
    if (!atomic_compare_exchange_strong(&stats_state.phase, &phase, OPENING)) return phase == OPEN;
    if (atomic_load_explicit(&stats_state.number, memory_order_relaxed)) empty();
    fill_head(&page.head);
    atomic_fetch_add(&stats_state.number, 1);
    phase = OPENING;
    if (!atomic_compare_exchange_strong(&stats_state.phase, &phase, OPEN)) return phase == OPEN;
    void (*made)(void) = atomic_load(&stats_state.made);
    if (made) made();
    return true;
}

// The kernel is asked only if the calling thread is not the one that it was at the start.
void qy_stats_page_process(void) {
    int pid = atomic_load(&stats_state.pid);
    if (pid && qy_os_thread_id_known() != pid) atomic_store(&stats_state.pid, qy_os_process_id());
}

void qy_stats_page_before(void (*fn)(void)) {
    atomic_store_explicit(&stats_state.before, fn, memory_order_relaxed);
}

void qy_stats_page_start(uint32_t part, void (*made)(void)) {
    if (!qy_opts.stats_page) return;
    if (made) atomic_store(&stats_state.made, made);
    if (!atomic_load(&stats_state.pid)) atomic_store(&stats_state.pid, qy_os_process_id());
    uint32_t parts = atomic_fetch_or(&stats_state.parts, part) | part;
    if (qy_stats_page()) __atomic_store_n(&page.head.parts, parts, __ATOMIC_RELAXED);
}

bool qy_stats_page_moved(size_t bytes) {
    if (QY_LIKELY(qy_stats_page() != NULL)) return true;
    if (!atomic_load(&stats_state.parts)) return false;
    return atomic_fetch_add(&stats_state.moved, bytes) + bytes >= QY_STATS_PAGE_MIN && open_page();
}

// The first part that is told closes the page: it is the one that was told of the fork before, too.
bool qy_stats_page_in_child(uint32_t part, bool large) {
    if (!(atomic_fetch_or(&stats_state.reset, part) & part))
        return qy_stats_page() || (large && atomic_load(&stats_state.parts) && open_page());
    atomic_store(&stats_state.reset, part);
    atomic_store(&stats_state.pid, qy_os_thread_id_known());
    atomic_store(&stats_state.moved, 0);
    // A child that never had a page copies none for this.
    if (__atomic_load_n(&page.head.pid, __ATOMIC_RELAXED)) __atomic_store_n(&page.head.pid, 0, __ATOMIC_RELAXED);
    atomic_store(&stats_state.phase, CLOSED);
    return large && atomic_load(&stats_state.parts) && open_page();
}
