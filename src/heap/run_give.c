// SPDX-License-Identifier: MIT
// run_give.c: see run_give.h.
#include "heap/run_give.h"

#include "os/os.h"
#include "pages/allowance.h"
#include "pages/chunk.h"
#include "pages/purging.h"
#include "rt/heuristics.h"

#define LONG UINT64_C(100000000)     // ns; a page that is had anew costs one to three microseconds
#define AT_ONCE ((uint64_t)2 << 20)  // of what was not spent, so much may go at once,
#define PART 32u                     // or this part of all runs; more is lost. No more goes of what is the first of its size

_Atomic size_t qy_run_largest_first;

uint64_t qy_run_clock(void) { return qy_os_now_coarse_ns(); }

// Nobody can know whether there will be more like it. If there will, it is had anew once.
static bool is_first(size_t mapped, size_t bytes) {
    size_t largest = atomic_load_explicit(&qy_run_largest_first, memory_order_relaxed);
    if (!QY_WITH(run_first) || bytes < 2 * largest || bytes > qy_max(AT_ONCE, mapped / PART) || qy_os_thp_always()) return false;
    atomic_store_explicit(&qy_run_largest_first, bytes, memory_order_relaxed);
    return true;
}

// With huge pages always, one of them is one fault, and soon split by this.
static bool lived_long(const qy_slab_t *s) { return QY_WITH(run_old) && qy_run_clock() - s->made >= LONG && !qy_os_thp_always(); }

// One may have as much go as it brings, and that is paid for later.
static bool can_pay(size_t mapped, size_t bytes) {
    if (!qy_allowance_left(&qy_allowance_of_runs, qy_run_clock(), qy_max(AT_ONCE, mapped / PART))) return false;
    qy_allowance_spend(&qy_allowance_of_runs, bytes / QY_ALLOWANCE_TRUST);
    return true;
}

void qy_run_give(const qy_slab_t *s, qy_chunk_t *chunk, unsigned first, unsigned n, bool touched, size_t mapped) {
    char *base = chunk->record.base + (size_t)first * QY_UNIT;
    size_t bytes = (size_t)n * QY_UNIT;
    // Only whole pages can go; they may be larger than a unit.
    bool may = touched && qy_purging_runs() && (((uintptr_t)base | bytes) & (qy_os_page_size() - 1)) == 0;
    // The purge lock is what a fork waits for: in the child, units that are with the kernel just then would be nobody's.
    bool old = may && lived_long(s), locked = (old || (may && is_first(mapped, bytes))) && qy_lock_try(qy_purging_lock());
    bool gone = locked && (!old || can_pay(mapped, bytes)) && qy_purging_pages(base, bytes);
    if (gone && old) qy_units_went_early(chunk, first, n);
    qy_units_give_long(chunk, first, n, touched && !gone);
    if (locked) qy_lock_drop(qy_purging_lock());
}
