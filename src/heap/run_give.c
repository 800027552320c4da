// SPDX-License-Identifier: MIT
// run_give.c: see run_give.h.
#include "heap/run_give.h"

#include "heap/chunk.h"
#include "heap/purge.h"
#include "os/os.h"

#define DIRTY_MIN ((size_t)256 << 20)  // free pages kept until they are old: as many as are live in runs, or so many
#define DIRTY_UNITS 32u                // shorter runs are small change

#define LONG UINT64_C(100000000)     // ns; a page that is had anew costs one to three microseconds
#define RATE ((uint64_t)6 << 20)     // bytes a second: some 1,500 pages, a few thousandths of the time
#define AT_ONCE ((uint64_t)2 << 20)  // of what was not spent, so much may go at once,
#define PART 32u                     // or this part of all runs; more is lost

_Atomic uint64_t qy_run_spent_until;

uint64_t qy_run_clock(void) { return qy_os_now_coarse_ns(); }

static bool is_much(size_t mapped, size_t bytes) {
    return bytes >= DIRTY_UNITS * QY_UNIT && qy_units_dirty_bytes() + bytes > qy_max(mapped, DIRTY_MIN);
}

static uint64_t cost(uint64_t bytes) { return bytes * 1000 / RATE * 1000000; }

// One may have as much go as it brings, and that is paid for later.
static bool lived_long(const qy_slab_t *s, size_t mapped, size_t bytes) {
    uint64_t now = qy_run_clock();
    // With huge pages always, one of them is one fault, and soon split by this.
    if (now - s->made < LONG || qy_os_thp_always()) return false;
    uint64_t until = atomic_load_explicit(&qy_run_spent_until, memory_order_relaxed), saved = cost(qy_max(AT_ONCE, mapped / PART));
    if (until + saved < now) until = now - saved;
    if (until >= now) return false;
    atomic_store_explicit(&qy_run_spent_until, until + cost(bytes), memory_order_relaxed);
    return true;
}

bool qy_run_pages_stay(const qy_slab_t *s, char *base, unsigned n, size_t mapped) {
    size_t bytes = (size_t)n << QY_UNIT_SHIFT;
    // Only whole pages can go; they may be larger than a unit.
    if (((uintptr_t)base | bytes) & (qy_os_page_size() - 1)) return true;
    if (!qy_purge_epoch_runs() || !(is_much(mapped, bytes) || lived_long(s, mapped, bytes))) return true;
    if (!qy_os_purge(base, bytes)) return true;
    qy_purge_count(bytes);
    return false;
}
