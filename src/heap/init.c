// SPDX-License-Identifier: MIT
// init.c: the heap comes to life in the first slow call of the process, which may be before any
// constructor ran: with system calls only. What needs a working libc (the environment, fork
// handlers) follows when it is there.
#include "heap/atfork.h"
#include "heap/cache.h"
#include "heap/fork.h"
#include "heap/guards.h"
#include "heap/heaps.h"
#include "heap/link.h"
#include "heap/locks.h"
#include "heap/purge.h"
#include "heap/samples.h"
#include "heap/stats.h"
#include "heap/stats_page.h"
#include "os/os.h"
#include "rt/heuristics.h"
#include "rt/opts.h"

// As long as these stand no block is free, and the end of lists must not look so.
qy_link_keys_t qy_link = {
    .hide = QY_LINK_TOP << 48,
    .mix = UINT64_C(0x9E3779B97F4A7C15),
    .fold = UINT64_C(0xD1B54A32D192ED03),
    .chosen = QY_LINK_TOP << 48};
qy_block_t qy_link_end;

_Atomic bool qy_heap_up;
static struct {
    qy_lock_t lock;
    bool begun;  // [lock] the handlers of forks
} init;

static void choose_keys(void) {
    static bool chosen;
    if (chosen) return;
    chosen = true;
    // Of the address bits 16 are left out, so that a sum has no more than 48.
    qy_link.hide = QY_LINK_TOP << 48 | qy_os_random() >> 17;
    do {
        qy_link.mix = qy_os_random() | 1;
        qy_link.fold = qy_os_random() | 1;
        qy_link.chosen = (qy_os_random() | UINT64_C(1) << 63) & -(uint64_t)QY_LINK_RATES;
    } while (qy_link_valid(&qy_link_end));
}

bool qy_heap_start(void) {
    qy_lock_take(&init.lock);
    if (!qy_heap_is_up()) {
        if (QY_CFG_WITHOUT) qy_without_read();
        choose_keys();
        qy_purge_begin();
        if (QY_CFG_CHECK >= 2) qy_locks_check_order();
        atomic_store_explicit(&qy_heap_up, true, memory_order_release);
    }
    qy_lock_drop(&init.lock);

    // This may allocate: not under the lock.
    qy_lock_take(&init.lock);
    bool first = !init.begun;
    init.begun = true;
    qy_lock_drop(&init.lock);
    if (first) qy_fork_begin();
    return true;
}

void qy_heap_constructed(void) {
    qy_opts_read();
    qy_lock_ask_cpus();
    qy_os_thread_exit_late();
    qy_os_first_thread_begin();
    qy_os_watch_begin();
    if (qy_opts.guard) qy_guards_begin();
    if (qy_opts.sample || qy_opts.guard) {
        qy_atfork_needed();
        qy_samples_begin();
    }
    if (qy_heap_init()) qy_stats_page_begin();
    (void)qy_os_thp_always();  // while files may be opened: a sandbox may end who does so later
    qy_os_names(false);        // nor are mappings named later
    qy_thread_options_changed();
}

// Another one comes before libquarry alone, which is asked in api/pool_heap.c.
__attribute__((weak)) bool qy_heap_is_ours(void) { return true; }

// Here, and not beside the exported functions, because every program that links any part of the heap
// statically gets this file.
#ifdef __GLIBC__
__attribute__((constructor(101))) static void constructed(int argc, char **argv, char **environment) {
    qy_os_started(argc, argv, environment);
    qy_heap_constructed();
}
#else
__attribute__((constructor(101))) static void constructed(void) { qy_heap_constructed(); }
#endif

__attribute__((destructor(101))) static void destructed(void) { qy_stats_at_exit(); }
