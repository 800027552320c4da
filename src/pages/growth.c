// SPDX-License-Identifier: MIT
// growth.c: see growth.h.
#include "pages/growth.h"

#include "os/os.h"
#include "pages/allowance.h"
#include "pages/chunk_state.h"
#include "pages/purging.h"
#include "rt/heuristics.h"

#define WORTH ((size_t)64 << 10)  // less that is free is not looked at,
#define PART 256u                 // nor less than this part of all
#define STEP ((size_t)256 << 10)  // at least this much goes back at once
#define AT_ONCE 32u               // of what was saved, this part of all pages may go at once; more is lost

_Atomic size_t qy_growth_wanted;
static _Atomic size_t beside;

void qy_growth_beside(size_t bytes) { atomic_store_explicit(&beside, bytes, memory_order_relaxed); }
size_t qy_growth_is_beside(void) { return atomic_load_explicit(&beside, memory_order_relaxed); }

static size_t idle_bytes(void) { return qy_units_dirty_bytes() + qy_growth_is_beside(); }

// What cannot go back is not tried again soon: locked memory, say.
static void pay(size_t want, size_t bytes) {
    if (bytes < want && idle_bytes() >= WORTH) qy_allowance_suspend(&qy_allowance_of_growth, qy_os_now_ns());
    else qy_allowance_spend(&qy_allowance_of_growth, bytes);
}

// The allowance permits it, or not yet: a large run may have as much go as it brings, which is little beside touching
// it, and that is paid for later. A small program that runs for a moment would spend a second's worth in it, were more
// than a part saved.
static void give_back(size_t want, size_t touched) {
    // With huge pages always, one of them is one fault, and soon split by this.
    if (!qy_purging_runs() || qy_os_thp_always()) return;
    size_t at_once = qy_min(qy_max(touched / AT_ONCE, STEP), (size_t)QY_ALLOWANCE_RATE);
    if (!qy_allowance_left(&qy_allowance_of_growth, qy_os_now_ns(), at_once) || !qy_lock_try(qy_purging_lock())) return;
    size_t bytes = qy_chunks_purge(0, 0, 0, want);
    qy_lock_drop(qy_purging_lock());
    if (bytes < want && qy_growth_is_beside()) {
        qy_allowance_spend(&qy_allowance_of_growth, bytes);
        atomic_store_explicit(&qy_growth_wanted, want - bytes, memory_order_relaxed);
    } else {
        pay(want, bytes);
    }
}

void qy_growth_went(size_t wanted, size_t bytes) { pay(wanted, bytes); }

void qy_growth_of_units(void) {
    QY_NEEDS(&qy_units.lock);
    size_t touched = qy_units_touched_bytes();
    if (touched <= qy_units.most_touched) return;
    if (QY_WITH(growth) && idle_bytes() >= qy_max(WORTH, touched / PART)) {
        give_back(qy_max(touched - qy_units.most_touched, STEP), touched);
        touched = qy_units_touched_bytes();
    }
    qy_units.most_touched = qy_max(qy_units.most_touched, touched);
}
