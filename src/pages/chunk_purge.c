// SPDX-License-Identifier: MIT
// chunk_purge.c: free units' pages go back to the kernel: those that are old, or all; at the peak as many as come new.
#include "os/os.h"
#include "pages/bits.h"
#include "pages/chunk.h"
#include "pages/chunk_state.h"
#include "pages/purging.h"
#include "rt/heuristics.h"

// Purge the lowest run of *todo, which are dirty units of c, outside the lock: the units are taken out
// of the free set meanwhile, so nobody can be handed them. Takes the run off *todo. Returns bytes.
static size_t purge_run_locked(qy_chunk_t *c, qy_bits_t *todo, bool by_age) {
    QY_NEEDS(&qy_units.lock);
    size_t page_units = qy_max(1, qy_os_page_size() / QY_UNIT);
    unsigned first = qy_bits_lowest(*todo);
    qy_bits_t rest = ~(*todo >> first);
    unsigned n = rest ? qy_bits_lowest(rest) : QY_CHUNK_UNITS;
    if (first + n > QY_CHUNK_UNITS) n = QY_CHUNK_UNITS - first;
    qy_bits_t run = qy_bits_run(first, n);
    *todo &= ~run;
    c->free &= ~run;
    c->dirty &= ~run;
    qy_chunk_file(c);
    qy_units_count(&qy_units_counts.dirty_bytes, 0, n * QY_UNIT);
    qy_lock_drop(&qy_units.lock);

    // With pages larger than a unit only whole pages inside the run can go back.
    unsigned begin = (unsigned)qy_round_up(first, page_units), end = (unsigned)qy_round_down(first + n, page_units);
    char *from = c->record.base + begin * QY_UNIT;
    if (begin >= end || !qy_purging_pages(from, (end - begin) * QY_UNIT)) begin = end = first;
    size_t bytes = (end - begin) * QY_UNIT;

    qy_lock_take(&qy_units.lock);
    qy_bits_t kept = run & ~qy_bits_run(begin, end - begin);
    c->free |= run;
    c->dirty |= kept;
    if (by_age) c->given |= run & ~kept;  // what was asked for says nothing of how long to wait
    qy_units_count(&qy_units_counts.dirty_bytes, qy_bits_count(kept) * QY_UNIT, 0);
    qy_chunk_file(c);
    return bytes;
}

size_t qy_chunks_purge(uint32_t epoch, uint32_t age, size_t keep, size_t budget) {
    QY_NEEDS(&qy_units.lock);
    size_t total = 0;
    for (qy_chunk_t *c = qy_units.all; c && total < budget; c = c->all_next) {
        // Each run is tried once: what cannot go back (locked pages) does not keep others from it.
        qy_bits_t todo = c->dirty;
        while (todo && epoch - c->epoch >= age && total < budget &&
               atomic_load_explicit(&qy_units_counts.dirty_bytes, memory_order_relaxed) > keep) {
            total += purge_run_locked(c, &todo, age > 0);
            todo &= c->dirty;  // units may have been taken meanwhile
        }
    }
    return total;
}

size_t qy_units_purge(uint32_t epoch, uint32_t age, size_t keep, size_t budget) {
    qy_lock_take(&qy_units.lock);
    size_t total = qy_chunks_purge(epoch, age, keep, budget);
    qy_lock_drop(&qy_units.lock);
    return total;
}

// ---- at the peak --------------------------------------------------------------------------------

#define WORTH ((size_t)64 << 10)  // less that is free is not looked at,
#define PART 256u                 // nor less than this part of all
#define STEP ((size_t)256 << 10)  // at least this much goes back at once

// A large run may have as much go as it brings, which is little beside touching it, and that is paid for later. A small
// program that runs for a moment would spend a second's worth in it, were more than a part saved.
static void give_at_peak(size_t want, size_t touched) {
    if (!qy_purging_may(QY_PURGING_GROWTH, want, touched) || !qy_lock_try(qy_purging_lock())) return;
    size_t bytes = qy_chunks_purge(0, 0, 0, want);
    qy_lock_drop(qy_purging_lock());
    if (bytes < want && qy_units_dirty_bytes() >= WORTH) qy_purging_refused(QY_PURGING_GROWTH);
    else qy_purging_pay(QY_PURGING_GROWTH, bytes);
}

void qy_units_grew(void) {
    QY_NEEDS(&qy_units.lock);
    size_t touched = qy_units_touched_bytes();
    if (touched <= qy_units.most_touched) return;
    if (QY_WITH(growth) && qy_units_dirty_bytes() >= qy_max(WORTH, touched / PART)) {
        give_at_peak(qy_max(touched - qy_units.most_touched, STEP), touched);
        touched = qy_units_touched_bytes();
    }
    qy_units.most_touched = qy_max(qy_units.most_touched, touched);
}
