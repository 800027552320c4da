// SPDX-License-Identifier: MIT
// locks.c: see locks.h.
#include "heap/locks.h"

#include "heap/cache.h"
#include "guard/guard.h"
#include "heap/guards.h"
#include "heap/guards_report.h"
#include "heap/heaps.h"
#include "heap/huge.h"
#include "heap/samples.h"
#include "pages/chunk.h"
#include "pages/map.h"
#include "pages/meta.h"
#include "pages/purging.h"
#include "rt/diag.h"

static qy_lock_t *(*const lock_of[QY_RANKS])(void) = {
    [QY_RANK_PURGING] = qy_purging_lock,
    [QY_RANK_HEAPS_LIST] = qy_heaps_lock,
    [QY_RANK_HEAP] = NULL,  // there are many
    [QY_RANK_UNITS] = qy_units_lock,
    [QY_RANK_HUGE] = qy_huge_lock,
    [QY_RANK_MAP] = qy_map_lock,
    [QY_RANK_THREADS] = qy_thread_lock,
    [QY_RANK_SAMPLES] = qy_samples_lock,
    [QY_RANK_GUARDS] = qy_guards_lock,
    [QY_RANK_REPORT] = qy_guards_report_lock,
    [QY_RANK_GUARD] = qy_guard_lock,
    [QY_RANK_META] = qy_meta_lock,
};

void qy_locks_each(qy_lock_rank_t from, void (*fn)(qy_lock_t *lock, uint64_t arg), uint64_t arg) {
    for (qy_lock_rank_t rank = from; rank < QY_RANKS; rank++) {
        if (rank != QY_RANK_HEAP) fn(lock_of[rank](), arg);
        else
            for (qy_heap_t *h = qy_heap_first(); h; h = h->next) fn(&h->lock, arg);
    }
}

bool qy_locks_any(bool (*is)(const qy_lock_t *lock)) {
    for (qy_lock_rank_t rank = 0; rank < QY_RANKS; rank++)
        if (rank != QY_RANK_HEAP && is(lock_of[rank]())) return true;
    for (qy_heap_t *h = qy_heap_first(); h; h = h->next)
        if (is(&h->lock)) return true;
    return false;
}

// ---- the order --------------------------------------------------------------------------------------

static qy_lock_rank_t rank_of(const qy_lock_t *lock) {
    for (qy_lock_rank_t rank = 0; rank < QY_RANKS; rank++)
        if (rank != QY_RANK_HEAP && lock_of[rank]() == lock) return rank;
    for (qy_heap_t *h = qy_heap_first(); h; h = h->next)
        if (&h->lock == lock) return QY_RANK_HEAP;
    return QY_RANKS;
}

// The heap waits for none that is out while it holds another, so the holder of one that is out may wait for any.
static void must_be_others(qy_lock_t *lock, uint64_t taken) {
    if (lock != (qy_lock_t *)(uintptr_t)taken && !qy_lock_is_out(lock)) qy_assert(!qy_lock_is_mine(lock));
}

// Before the calling thread waits for this lock.
static void check_order(const qy_lock_t *lock) {
    qy_lock_rank_t rank = rank_of(lock);
    if (rank < QY_RANKS) qy_locks_each(rank, must_be_others, (uintptr_t)lock);
}

void qy_locks_check_order(void) { qy_lock_before = check_order; }
