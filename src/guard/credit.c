// SPDX-License-Identifier: MIT
// credit.c: see credit.h.
#include "guard/credit.h"

#include "base/num.h"
#include "os/os.h"
#include "os/process.h"

// The processor time is asked for once in a tick of the coarse clock.
static void credit_earn(qy_guard_credit_t *c) {
    uint64_t tick = qy_os_now_coarse_ns(), before = atomic_load_explicit(&c->tick_ns, memory_order_relaxed);
    if (tick == before || !atomic_compare_exchange_strong(&c->tick_ns, &before, tick)) return;
    uint64_t cpu = qy_os_cpu_ns(), was = atomic_exchange(&c->cpu_ns, cpu);
    // A fork's child begins anew with its clock.
    if (!before || cpu <= was) return;
    int64_t more = (int64_t)(qy_min(cpu - was, (uint64_t)c->most_ns * c->one_in) / c->one_in);
    int64_t now = atomic_load(&c->ns);
    atomic_fetch_add(&c->ns, qy_min(more, c->most_ns - now));
}

bool qy_guard_credit_has(qy_guard_credit_t *c, int64_t floor_ns) {
    if (atomic_load_explicit(&c->ns, memory_order_relaxed) > floor_ns) return true;
    credit_earn(c);
    return atomic_load_explicit(&c->ns, memory_order_relaxed) > floor_ns;
}

void qy_guard_credit_spend(qy_guard_credit_t *c, int64_t ns) {
    atomic_fetch_sub_explicit(&c->ns, ns, memory_order_relaxed);
}
