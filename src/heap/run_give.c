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

uint64_t qy_run_spent_until;

uint64_t qy_run_clock(void) { return qy_os_now_coarse_ns(); }

static bool is_much(size_t mapped, size_t bytes) {
    return bytes >= DIRTY_UNITS * QY_UNIT && qy_units_dirty_bytes() + bytes > qy_max(mapped, DIRTY_MIN);
}

// With huge pages always, one of them is one fault, and soon split by this.
static bool lived_long(const qy_slab_t *s) { return qy_run_clock() - s->made >= LONG && !qy_os_thp_always(); }

static uint64_t cost(uint64_t bytes) { return bytes * 1000000 / RATE * 1000; }

// One may have as much go as it brings, and that is paid for later.
static bool can_pay(size_t mapped, size_t bytes) {
    uint64_t now = qy_run_clock(), saved = cost(qy_max(AT_ONCE, mapped / PART));
    if (qy_run_spent_until + saved < now) qy_run_spent_until = now - saved;
    if (qy_run_spent_until >= now) return false;
    qy_run_spent_until += cost(bytes);
    return true;
}

void qy_run_give(const qy_slab_t *s, qy_chunk_t *chunk, unsigned first, unsigned n, bool touched, size_t mapped) {
    char *base = chunk->base + (size_t)first * QY_UNIT;
    size_t bytes = (size_t)n * QY_UNIT;
    // Only whole pages can go; they may be larger than a unit.
    bool may = touched && qy_purge_epoch_runs() && (((uintptr_t)base | bytes) & (qy_os_page_size() - 1)) == 0;
    bool much = may && is_much(mapped, bytes);
    // The purge lock is what a fork waits for: in the child, units that are with the kernel just then would be nobody's.
    bool locked = (much || (may && lived_long(s))) && qy_lock_try(qy_purge_lock());
    bool gone = locked && (much || can_pay(mapped, bytes)) && qy_os_purge(base, bytes);
    if (gone) qy_purge_count(bytes);
    qy_units_give_long(chunk, first, n, touched && !gone);
    if (locked) qy_lock_drop(qy_purge_lock());
}
