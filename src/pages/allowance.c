// SPDX-License-Identifier: MIT
// allowance.c: see allowance.h.
#include "pages/allowance.h"

#define SECOND UINT64_C(1000000000)

qy_allowance_t qy_allowance_of_growth, qy_allowance_of_runs;

static uint64_t cost(uint64_t bytes) { return bytes * (SECOND / 1000) / QY_ALLOWANCE_RATE * 1000; }

bool qy_allowance_left(qy_allowance_t *a, uint64_t now, uint64_t burst) {
    uint64_t until = atomic_load_explicit(&a->spent_until, memory_order_relaxed), saved = cost(burst);
    if (until + saved < now) atomic_store_explicit(&a->spent_until, until = now - saved, memory_order_relaxed);
    return until < now;
}

void qy_allowance_spend(qy_allowance_t *a, uint64_t bytes) {
    atomic_fetch_add_explicit(&a->spent_until, cost(bytes), memory_order_relaxed);
}

void qy_allowance_suspend(qy_allowance_t *a, uint64_t now) {
    atomic_store_explicit(&a->spent_until, now + SECOND, memory_order_relaxed);
}

// Time has passed since they went, which pays for it too.
void qy_allowance_of_runs_again(uint64_t bytes) {
    qy_allowance_spend(&qy_allowance_of_runs, bytes - bytes / QY_ALLOWANCE_TRUST);
}
