// SPDX-License-Identifier: MIT
// cache.c: how much caches keep; see cache.h. A thread's record is in thread.c.
#include "heap/cache.h"
#include "rt/heuristics.h"

static _Atomic size_t threads;
_Atomic uint32_t qy_budget_period_now = QY_BUDGET_PERIOD_MOST, qy_budget_generation_now = QY_GENERATION_MOST,
                 qy_budget_pend_now = QY_PEND_BYTES;

// Two that come at once may leave the period of one thread more or less.
static void divide_by(size_t n) {
    if (!QY_WITH(period)) return;
    size_t period = qy_min(qy_max(QY_BUDGET_BYTES / qy_max(n, 1), QY_BUDGET_PERIOD_LEAST), QY_BUDGET_PERIOD_MOST);
    atomic_store_explicit(&qy_budget_period_now, (uint32_t)period, memory_order_relaxed);
    atomic_store_explicit(
        &qy_budget_generation_now, (uint32_t)qy_min(period / QY_BUDGET_PART, QY_GENERATION_MOST), memory_order_relaxed);
    size_t cpus = qy_lock_cpus(), pend = cpus && n > QY_BUDGET_CROWD * cpus ? QY_BUDGET_PEND_LEAST : QY_PEND_BYTES;
    atomic_store_explicit(&qy_budget_pend_now, (uint32_t)pend, memory_order_relaxed);
}

void qy_budget_enter(void) { divide_by(atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) + 1); }
void qy_budget_leave(void) { divide_by(atomic_fetch_sub_explicit(&threads, 1, memory_order_relaxed) - 1); }
void qy_budget_after_fork(void) {
    atomic_store_explicit(&threads, 1, memory_order_relaxed);
    divide_by(1);
}
