// SPDX-License-Identifier: MIT
// fork.c: see fork.h.
#include "heap/fork.h"

#include "heap/atfork.h"
#include "heap/cache.h"
#include "heap/heaps.h"
#include "heap/helper.h"
#include "heap/locks.h"
#include "heap/purge.h"
#include "heap/samples.h"
#include "heap/stats_page.h"
#include "os/os.h"
#include "os/streams.h"
#include "pages/purging.h"

// Libc's list of streams (os/streams.h) comes before all of ours, which follow in the order of their ranks (locks.h).
// The first lock of ours is also what keeps two forking threads apart, so it is frozen first and let go last. No heap
// is made meanwhile: that needs the metadata lock, which is thawed after theirs.
static void all_but_first(void (*fn)(qy_lock_t *lock, uint64_t arg), uint64_t arg) {
    qy_locks_each(QY_RANK_PURGING + 1, fn, arg);
}

// ---- a fork inside of the heap ------------------------------------------------------------------
// A signal handler may fork although it interrupted the heap while that held locks. What this thread
// holds stays as it is, on both sides: the interrupted code goes on when the handler returns, in the
// child as in the parent. The other locks are frozen as far as that goes without waiting for long:
// who holds one may be waiting for ours. The list of streams is waited for as ever: the rest of the fork does so too.
//
// The handler may have interrupted even a fork, in one of the functions below. Then that fork's locks
// are left to it.

#define PATIENCE_NS UINT64_C(20000000)
#define GONE_NS UINT64_C(200000000)  // on a busy machine a thread that ends may wait that long for a processor

enum { OUTSIDE,
    INSIDE,
    IN_FORK };
static __thread unsigned forks_in_forks;

static int where(void) {
    if (qy_locks_any(qy_lock_is_frozen)) return IN_FORK;
    return qy_locks_any(qy_lock_is_mine) ? INSIDE : OUTSIDE;
}

static void freeze(qy_lock_t *lock, uint64_t unused) {
    (void)unused;
    qy_lock_freeze(lock);
}
static void freeze_until(qy_lock_t *lock, uint64_t deadline) { qy_lock_freeze_until(lock, deadline); }
static void thaw(qy_lock_t *lock, uint64_t unused) {
    (void)unused;
    if (qy_lock_is_frozen(lock)) qy_lock_thaw(lock);
}

// A heap that is being walked is left to its walk, which calls the program's code: that may wait for anything that this
// thread has by now. A walk changes nothing, and cannot end while the list of heaps is frozen (walk.c).
static void freeze_all(void) {
    qy_lock_freeze(qy_purging_lock());
    qy_lock_freeze(qy_heaps_lock());
    for (qy_heap_t *h = qy_heap_first(); h; h = h->next) qy_lock_freeze_unless_out(&h->lock);
    qy_locks_each(QY_RANK_HEAP + 1, freeze, 0);
}

// In the child. What is not this thread's is of one that does not exist there.
static void reset(qy_lock_t *lock, uint64_t unused) {
    (void)unused;
    if (!qy_lock_is_mine(lock)) qy_lock_reset(lock);
}
static void reset_others(qy_lock_t *lock, uint64_t unused) {
    if (!qy_lock_is_frozen(lock)) reset(lock, unused);
}

// ---- the handlers ---------------------------------------------------------------------------------

static void prepare(void) {
    int at = where();
    if (at == IN_FORK) {
        forks_in_forks++;
        return;
    }
    if (at == OUTSIDE && qy_heaps_threads() <= 1) qy_helper_end();
    qy_os_streams_hold();
    if (at == INSIDE) {
        uint64_t deadline = qy_os_now_ns() + PATIENCE_NS;
        freeze_until(qy_purging_lock(), deadline);
        all_but_first(freeze_until, deadline);
    } else {
        freeze_all();
    }
}

static void parent(void) {
    if (forks_in_forks) {
        forks_in_forks--;
        return;
    }
    all_but_first(thaw, 0);
    thaw(qy_purging_lock(), 0);
    qy_os_streams_let_go();
}

static void child(void) {
    qy_os_streams_in_child();
    qy_os_first_thread_in_child();
    qy_purge_after_fork();
    qy_budget_after_fork();
    qy_samples_after_fork();
    if (forks_in_forks) {
        forks_in_forks--;
        all_but_first(reset_others, 0);
        reset_others(qy_purging_lock(), 0);
        qy_stats_page_after_fork(true);
        return;
    }
    bool inside = qy_locks_any(qy_lock_is_mine);
    // Not while the list is being changed, nor while this thread is between two heaps: the others'
    // heaps then keep what they have, and nobody takes them over.
    if (qy_lock_is_frozen(qy_heaps_lock()) && !qy_thread_is_moving())
        qy_heaps_after_fork(QY_CACHE->thread ? QY_CACHE->thread->heap : NULL);
    all_but_first(reset, 0);
    reset(qy_purging_lock(), 0);
    qy_stats_page_after_fork(inside);
}

void qy_heap_be_alone(void) {
    if (!qy_heap_is_up() || where() != OUTSIDE) return;
    qy_helper_end();
    qy_os_bare_threads_gone(GONE_NS);
}

void qy_fork_begin(void) { qy_atfork_begin(prepare, parent, child); }
