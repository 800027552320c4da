// SPDX-License-Identifier: MIT
// growth.c: see growth.h.
#include "pages/growth.h"

#include "pages/chunk_state.h"
#include "pages/purging.h"
#include "rt/heuristics.h"

#define WORTH ((size_t)64 << 10)  // less that is free is not looked at,
#define PART 256u                 // nor less than this part of all
#define STEP ((size_t)256 << 10)  // at least this much goes back at once

_Atomic size_t qy_growth_wanted;
static _Atomic size_t beside;

void qy_growth_beside(size_t bytes) { atomic_store_explicit(&beside, bytes, memory_order_relaxed); }
size_t qy_growth_is_beside(void) { return atomic_load_explicit(&beside, memory_order_relaxed); }

size_t qy_growth_idle_bytes(void) { return qy_units_dirty_bytes() + qy_growth_is_beside(); }

void qy_growth_went(size_t wanted, size_t bytes) {
    if (bytes < wanted && qy_growth_idle_bytes() >= WORTH) qy_purging_refused(QY_PURGING_GROWTH);
    else qy_purging_pay(QY_PURGING_GROWTH, bytes);
}

// A large run may have as much go as it brings, which is little beside touching it, and that is paid for later. A small
// program that runs for a moment would spend a second's worth in it, were more than a part saved.
static void give_back(size_t want, size_t touched) {
    if (!qy_purging_may(QY_PURGING_GROWTH, want, touched) || !qy_lock_try(qy_purging_lock())) return;
    size_t bytes = qy_chunks_purge(0, 0, 0, want);
    qy_lock_drop(qy_purging_lock());
    if (bytes < want && qy_growth_is_beside()) {
        qy_purging_pay(QY_PURGING_GROWTH, bytes);
        atomic_store_explicit(&qy_growth_wanted, want - bytes, memory_order_relaxed);
    } else {
        qy_growth_went(want, bytes);
    }
}

void qy_growth_of_units(void) {
    QY_NEEDS(&qy_units.lock);
    size_t touched = qy_units_touched_bytes();
    if (touched <= qy_units.most_touched) return;
    if (QY_WITH(growth) && qy_growth_idle_bytes() >= qy_max(WORTH, touched / PART)) {
        give_back(qy_max(touched - qy_units.most_touched, STEP), touched);
        touched = qy_units_touched_bytes();
    }
    qy_units.most_touched = qy_max(qy_units.most_touched, touched);
}
