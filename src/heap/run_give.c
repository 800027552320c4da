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
#define PART 32u                     // or this part of all runs; more is lost. No more goes of what is the first of its size
#define TRUST 8u                     // what goes costs this part at first, the rest when somebody has it again

_Atomic uint64_t qy_run_spent_until;
_Atomic size_t qy_run_largest_first;

uint64_t qy_run_clock(void) { return qy_os_now_coarse_ns(); }

static bool is_much(size_t mapped, size_t bytes) {
    return bytes >= DIRTY_UNITS * QY_UNIT && qy_units_dirty_bytes() + bytes > qy_max(mapped, DIRTY_MIN);
}

// Nobody can know whether there will be more like it. If there will, it is had anew once.
static bool is_first(size_t mapped, size_t bytes) {
    size_t largest = atomic_load_explicit(&qy_run_largest_first, memory_order_relaxed);
    if (bytes < 2 * largest || bytes > qy_max(AT_ONCE, mapped / PART) || qy_os_thp_always()) return false;
    atomic_store_explicit(&qy_run_largest_first, bytes, memory_order_relaxed);
    return true;
}

// With huge pages always, one of them is one fault, and soon split by this.
static bool lived_long(const qy_slab_t *s) { return qy_run_clock() - s->made >= LONG && !qy_os_thp_always(); }

static uint64_t cost(uint64_t bytes) { return bytes * 1000000 / RATE * 1000; }

// What can_pay stores may lose one of these, which miscounts some bytes.
static void pay(uint64_t bytes) { atomic_fetch_add_explicit(&qy_run_spent_until, cost(bytes), memory_order_relaxed); }

// One may have as much go as it brings, and that is paid for later.
static bool can_pay(size_t mapped, size_t bytes) {
    uint64_t now = qy_run_clock(), saved = cost(qy_max(AT_ONCE, mapped / PART));
    uint64_t until = atomic_load_explicit(&qy_run_spent_until, memory_order_relaxed);
    if (until + saved < now) atomic_store_explicit(&qy_run_spent_until, until = now - saved, memory_order_relaxed);
    if (until >= now) return false;
    pay(bytes / TRUST);
    return true;
}

// Time has passed since it went, which pays for it too.
void qy_run_again(size_t bytes) { pay(bytes - bytes / TRUST); }

void qy_run_give(const qy_slab_t *s, qy_chunk_t *chunk, unsigned first, unsigned n, bool touched, size_t mapped) {
    char *base = chunk->base + (size_t)first * QY_UNIT;
    size_t bytes = (size_t)n * QY_UNIT;
    // Only whole pages can go; they may be larger than a unit.
    bool may = touched && qy_purge_epoch_runs() && (((uintptr_t)base | bytes) & (qy_os_page_size() - 1)) == 0;
    bool much = may && is_much(mapped, bytes);
    bool old = may && !much && lived_long(s);
    bool wanted = may && (much || old || is_first(mapped, bytes));
    // The purge lock is what a fork waits for: in the child, units that are with the kernel just then would be nobody's.
    bool locked = wanted && qy_lock_try(qy_purge_lock());
    bool paid = locked && old && can_pay(mapped, bytes), gone = locked && (paid || !old) && qy_os_purge(base, bytes);
    if (gone) qy_purge_count(bytes);
    if (gone && paid) qy_units_went_early(chunk, first, n);
    qy_units_give_long(chunk, first, n, touched && !gone);
    if (locked) qy_lock_drop(qy_purge_lock());
}
