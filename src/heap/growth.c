// SPDX-License-Identifier: MIT
// growth.c: see growth.h.
#include "heap/growth.h"

#include "heap/chunk.h"
#include "heap/chunk_state.h"
#include "heap/large.h"
#include "heap/purge.h"
#include "os/os.h"

#define WORTH ((size_t)64 << 10)  // less that is free is not looked at,
#define PART 256u                 // nor less than this part of all
#define STEP ((size_t)256 << 10)  // at least so much goes back at once
#define RATE ((uint64_t)6 << 20)  // bytes a second: some 1,500 faults, a few thousandths of the time
#define SECOND UINT64_C(1000000000)
#define AT_ONCE 32u                   // of what was not spent, this part of all pages may go at once; more is lost
#define UNDONE_MIN ((size_t)1 << 20)  // and this part goes when half of all is free, and all is more than this

static size_t idle_bytes(void) { return qy_units_dirty_bytes() + qy_huge_cached_bytes(); }

// RATE allows it, or not yet: a large run may have as much go as it brings, which is little beside touching it, and that is paid for
// later. A small program that runs for a moment would spend a second's worth in it, were more than a part saved.
static void give_back(size_t want, size_t touched) {
    // With huge pages always, one of them is one fault, and soon split by this.
    if (!qy_purge_epoch_runs() || qy_os_thp_always()) return;
    uint64_t now = qy_os_now_ns();
    size_t at_once = qy_min(qy_max(touched / AT_ONCE, STEP), (size_t)RATE);
    uint64_t saved = at_once * SECOND / RATE;
    if (qy_units.spent_until + saved < now) qy_units.spent_until = now - saved;
    // The purge lock is what a fork waits for: units that are with the kernel just then would be lost in the child.
    if (qy_units.spent_until >= now || !qy_lock_try(qy_purge_lock())) return;
    size_t bytes = qy_chunks_purge(0, 0, 0, want);
    if (bytes < want && qy_huge_cached_bytes()) {
        qy_lock_drop(&qy_units.lock);
        bytes += qy_huge_trim(want - bytes);
        qy_lock_take(&qy_units.lock);
    }
    qy_lock_drop(qy_purge_lock());
    // What cannot go back, locked memory say, is not tried again soon.
    bool denied = bytes < want && idle_bytes() >= WORTH;
    qy_units.spent_until = denied ? now + SECOND : qy_units.spent_until + bytes * SECOND / RATE;
}

void qy_growth_of_units(void) {
    size_t touched = qy_units_touched_bytes();
    if (touched <= qy_units.most_touched) return;
    if (idle_bytes() >= qy_max(WORTH, touched / PART)) {
        give_back(qy_max(touched - qy_units.most_touched, STEP), touched);
        touched = qy_units_touched_bytes();
    }
    qy_units.most_touched = qy_max(qy_units.most_touched, touched);
}

void qy_growth_undone(void) {
    size_t most = qy_units.most_touched, before = qy_units.most_undone;
    if (qy_units_dirty_bytes() < most / 2 || most < before + before / 2 + UNDONE_MIN) return;
    if (!qy_purge_epoch_runs() || qy_os_thp_always() || !qy_lock_try(qy_purge_lock())) return;
    qy_units.most_undone = most;
    qy_chunks_purge(0, 0, 0, qy_max(most / AT_ONCE, STEP));
    qy_lock_drop(qy_purge_lock());
}
