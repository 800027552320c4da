// SPDX-License-Identifier: MIT
// lock.h: a mutex of one word: one compare-and-swap to take, one exchange to release, a short spin when
// there is more than one CPU, then sleep. No allocation, zero is "free".
//
// The word says who holds it, by the thread's token, whole: no two living threads have the same. The token is the same
// in the child of a fork, so a fork in a signal handler can tell the locks that the interrupted code holds from those
// of others. Who waits for a lock that it holds itself would wait for ever: that ends the process in one line.
//
// Waits sleep on the word. None polls or yields: a holder of lower priority gets the processor only if who waits
// sleeps.
#ifndef QY_RT_LOCK_H
#define QY_RT_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "os/os.h"
#include "rt/diag.h"

// 0: free. Else the low two bits are one of these, and those above the third are the holder's token.
#define QY_LOCK_HELD 1u
#define QY_LOCK_WAITED 2u  // held, and others may sleep until it is released
#define QY_LOCK_FROZEN 3u  // held by a thread that is forking
// With HELD and WAITED: the holder runs the program's code, which may wait for whatever it likes.
#define QY_LOCK_OUT 4u
#define QY_LOCK_BITS 3u
#define QY_LOCK_KIND 7u

typedef struct qy_lock {
    _Atomic uint64_t state;
} qy_lock_t;

void qy_lock_slow(qy_lock_t *lock);
void qy_unlock_slow(qy_lock_t *lock);
// How many processors are there, that is, may spinning help? Asked at the start: whoever waits first may not ask
// (os/sandbox.c), or be bound to one processor beside others.
void qy_lock_ask_cpus(void);
unsigned qy_lock_cpus(void);  // as was told then; 0: not asked yet

// User addresses have at most 57 bits.
static inline uint64_t qy_lock_holder(void) { return (uint64_t)qy_os_thread_token() << QY_LOCK_BITS; }

static inline bool qy_lock_try(qy_lock_t *lock) {
    uint64_t free_state = 0;
    return atomic_compare_exchange_strong_explicit(
        &lock->state, &free_state, qy_lock_holder() | QY_LOCK_HELD, memory_order_acquire, memory_order_relaxed);
}
// Builds that check: called before each wait. NULL: nobody looks.
extern void (*qy_lock_before)(const qy_lock_t *lock);
static inline void qy_lock_take(qy_lock_t *lock) {
    if (QY_CFG_CHECK >= 2 && qy_lock_before) qy_lock_before(lock);
    if (__builtin_expect(!qy_lock_try(lock), 0)) qy_lock_slow(lock);
}
static inline void qy_lock_drop(qy_lock_t *lock) {
    // A frozen lock can only be dropped by the forking thread, which passed through it.
    if (__builtin_expect(
            (atomic_load_explicit(&lock->state, memory_order_relaxed) & QY_LOCK_KIND) == QY_LOCK_FROZEN, 0))
        return;
    if (__builtin_expect((atomic_exchange_explicit(&lock->state, 0, memory_order_release) & QY_LOCK_WAITED) != 0, 0))
        qy_unlock_slow(lock);
}

// A holder that is about to call the program goes out, and comes back. Who may not wait for that, since it holds what
// the program's code may want, does not; nor if it waits already.
void qy_lock_go_out(qy_lock_t *lock);
void qy_lock_come_back(qy_lock_t *lock);
static inline bool qy_lock_is_out(const qy_lock_t *lock) {
    return (atomic_load_explicit(&lock->state, memory_order_relaxed) & QY_LOCK_OUT) != 0;
}
// Sleep until it is free, or frozen by the calling thread, and do not take it.
void qy_lock_await(qy_lock_t *lock);
// Take it. False: its holder, who may be the caller, has gone out.
bool qy_lock_take_unless_out(qy_lock_t *lock);

// Around a fork: take the lock and mark it frozen. Until it is thawed, the forking thread passes
// through qy_lock_take and qy_lock_drop without effect (fork handlers of others may allocate); all
// other threads wait.
void qy_lock_freeze(qy_lock_t *lock);
void qy_lock_thaw(qy_lock_t *lock);
// False: it is the caller's, by taking it, or its holder has gone out.
bool qy_lock_freeze_unless_out(qy_lock_t *lock);
// False: it is the caller's, by taking it, or still somebody's at this time (qy_os_now_ns).
bool qy_lock_freeze_until(qy_lock_t *lock, uint64_t deadline);
// A fork handler of a lock that a signal handler which forks may find taken by what it interrupted: that stays as it
// is, on both sides. Phase 0: before the fork, 1: in the parent, 2: in the child.
void qy_lock_fork(qy_lock_t *lock, int phase);

// Does the calling thread hold it, by taking it (not by freezing it)? / Is it frozen by it? Others'
// locks may change at any time, one's own answers stay true.
static inline bool qy_lock_is_mine(const qy_lock_t *lock) {
    uint64_t state = atomic_load_explicit(&lock->state, memory_order_relaxed);
    return state >> QY_LOCK_BITS == qy_os_thread_token() && (state & QY_LOCK_KIND) != QY_LOCK_FROZEN;
}
static inline bool qy_lock_is_frozen(const qy_lock_t *lock) {
    return atomic_load_explicit(&lock->state, memory_order_relaxed) == (qy_lock_holder() | QY_LOCK_FROZEN);
}
// At the head of a function whose caller holds the lock.
#define QY_NEEDS(lock) qy_assert(qy_lock_is_mine(lock) || qy_lock_is_frozen(lock))

// Does somebody wait for it? (None that sleeps at a frozen lock is known.)
static inline bool qy_lock_is_waited(const qy_lock_t *lock) {
    return (atomic_load_explicit(&lock->state, memory_order_relaxed) & QY_LOCK_FROZEN) == QY_LOCK_WAITED;
}
// Is it frozen, by whomever?
static inline bool qy_lock_forks(const qy_lock_t *lock) {
    return (atomic_load_explicit(&lock->state, memory_order_relaxed) & QY_LOCK_KIND) == QY_LOCK_FROZEN;
}

// In the child of a fork, where no other thread holds the lock or waits for it.
static inline void qy_lock_reset(qy_lock_t *lock) { atomic_store_explicit(&lock->state, 0, memory_order_release); }

#endif
