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

#define LOOKS_FIRST ((size_t)32 << 10)  // after these bytes a thread looks for the first time, then after twice as many
#define PARTS 32u                       // of a period: so often it is looked which lists have their turn

// A period is no shorter than a part of the heap, unless there are many threads: its lists hold little beside it then.
static size_t period_of(const qy_thread_t *t) {
    size_t period = qy_budget_period();
    return period < QY_BUDGET_PERIOD_MOST ? period : qy_max(period, t->period_least);
}

// Each class has its turn once in a period. True: what is due is not all done.
static bool sweep(qy_thread_t *t, size_t period) {
    if (!QY_WITH(period) || qy_thread_state != QY_THREAD_LIVE) return false;
    unsigned due = t->period < period ? (unsigned)(t->period * QY_CLASS_COUNT / period) : QY_CLASS_COUNT;
    bool more = due > t->swept && qy_lists_sweep(t, due);
    if (t->swept < QY_CLASS_COUNT) return more;
    t->period = t->swept = 0;
    return false;
}

static void look(qy_thread_t *t, size_t moved) {
    bool page = qy_stats_page_moved(moved), first = !t->looks_at;
    t->looks_at = qy_min(qy_max(t->looks_at * 2, LOOKS_FIRST), QY_STATS_PAGE_MOVED);
    if (!page) return;
    // A thread that has just begun has nothing of its own to count, and may end before that matters.
    if (first) t->cached_ns = qy_os_now_ns();
    else qy_stats_count_cache(t);
    qy_stats_page_look(moved);
}

void qy_moved_much(qy_thread_t *t) {
    size_t moved = t->unlooked + t->moved, period = period_of(t);
    t->moved = 0;
    t->unlooked = moved < t->looks_at ? moved : 0;
    bool more = sweep(t, period);
    if (!t->unlooked) look(t, moved);
    t->moved_most = more ? 1 : qy_min(period / PARTS, t->looks_at - t->unlooked);
}

void qy_moved_without(size_t bytes) {
    if (qy_stats_page_moved(bytes)) qy_stats_page_look(bytes);
}
