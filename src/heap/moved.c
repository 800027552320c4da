// SPDX-License-Identifier: MIT
// moved.c: see moved.h.
#include "heap/moved.h"

#include "heap/cache.h"
#include "heap/lists.h"
#include "heap/stats_cache.h"
#include "heap/stats_page.h"
#include "os/os.h"
#include "rt/heuristics.h"
#include "rt/stats_page.h"

#define MOVED_FIRST ((size_t)32 << 10)  // after these bytes a thread looks for the first time, then after twice as many

static void pass_period(qy_thread_t *t) {
    if (!QY_WITH(period) || t->period < qy_budget_period() || qy_thread_state != QY_THREAD_LIVE) return;
    t->period = 0;
    qy_lists_sweep(t);
}

void qy_moved_much(qy_thread_t *t) {
    size_t moved = t->moved;
    bool page = qy_stats_page_moved(moved);
    bool first = !t->moved_most;
    t->moved = 0;
    t->moved_most = qy_min(qy_max(t->moved_most * 2, MOVED_FIRST), qy_min(QY_STATS_PAGE_MOVED, qy_budget_period()));
    pass_period(t);
    if (!page) return;
    // A thread that has just begun has nothing of its own to count, and may end before that matters.
    if (first) t->cached_ns = qy_os_now_ns();
    else qy_stats_count_cache(t);
    qy_stats_page_look();
}

void qy_moved_without(size_t bytes) {
    if (qy_stats_page_moved(bytes)) qy_stats_page_look();
}
