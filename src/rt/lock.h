// SPDX-License-Identifier: MIT
// lock.h: a 4-byte mutex: one compare-and-swap to take, one exchange to release, a short spin when
// there is more than one CPU, then sleep. No allocation, zero is "free".
//
// The word says who holds it, by the thread's token, which is the same in the child of a fork: so a
// fork in a signal handler can tell the locks that the interrupted code holds from those of others.
#ifndef QY_RT_LOCK_H
#define QY_RT_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "os/os.h"

// 0: free. Else the low two bits are one of these, and the others are of the holder's token.
#define QY_LOCK_HELD 1u
#define QY_LOCK_WAITED 2u  // held, and others may sleep until it is released
#define QY_LOCK_FROZEN 3u  // held by a thread that is forking
#define QY_LOCK_KIND 3u

typedef struct qy_lock {
    _Atomic uint32_t state;
} qy_lock_t;

void qy_lock_slow(qy_lock_t *lock);
void qy_unlock_slow(qy_lock_t *lock);
// How many processors are there, that is, may spinning help? Asked at the start: whoever waits first may not ask (os/sandbox.c), or be
// bound to one processor beside others.
void qy_lock_ask_cpus(void);

// 30 bits of the token, mixed: that two living threads share them is possible, but nobody's design.
// Nothing but what a child of a fork may do depends on it.
static inline uint32_t qy_lock_holder(void) {
    return (uint32_t)(((uint64_t)qy_os_thread_token() * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & ~QY_LOCK_KIND;
}

static inline bool qy_lock_try(qy_lock_t *lock) {
    uint32_t free_state = 0;
    return atomic_compare_exchange_strong_explicit(&lock->state, &free_state, qy_lock_holder() | QY_LOCK_HELD, memory_order_acquire, memory_order_relaxed);
}
static inline void qy_lock_take(qy_lock_t *lock) {
    if (__builtin_expect(!qy_lock_try(lock), 0)) qy_lock_slow(lock);
}
static inline void qy_lock_drop(qy_lock_t *lock) {
    // A frozen lock can only be dropped by the forking thread, which passed through it.
    if (__builtin_expect((atomic_load_explicit(&lock->state, memory_order_relaxed) & QY_LOCK_KIND) == QY_LOCK_FROZEN, 0)) return;
    if (__builtin_expect((atomic_exchange_explicit(&lock->state, 0, memory_order_release) & QY_LOCK_KIND) == QY_LOCK_WAITED, 0)) qy_unlock_slow(lock);
}

// Around a fork: take the lock and mark it frozen. Until it is thawed, the forking thread passes
// through qy_lock_take and qy_lock_drop without effect (fork handlers of others may allocate); all
// other threads wait.
void qy_lock_freeze(qy_lock_t *lock);
void qy_lock_thaw(qy_lock_t *lock);
// The same without waiting. False: somebody holds it, perhaps the caller.
bool qy_lock_try_freeze(qy_lock_t *lock);

// Does the calling thread hold it, by taking it (not by freezing it)? / Is it frozen by it? Others'
// locks may change at any time, one's own answers stay true.
static inline bool qy_lock_is_mine(const qy_lock_t *lock) {
    uint32_t state = atomic_load_explicit(&lock->state, memory_order_relaxed), mine = qy_lock_holder();
    return state == (mine | QY_LOCK_HELD) || state == (mine | QY_LOCK_WAITED);
}
static inline bool qy_lock_is_frozen(const qy_lock_t *lock) {
    return atomic_load_explicit(&lock->state, memory_order_relaxed) == (qy_lock_holder() | QY_LOCK_FROZEN);
}
// Is it frozen, by whomever?
static inline bool qy_lock_forks(const qy_lock_t *lock) {
    return (atomic_load_explicit(&lock->state, memory_order_relaxed) & QY_LOCK_KIND) == QY_LOCK_FROZEN;
}

// In the child of a fork, where no other thread holds the lock or waits for it.
static inline void qy_lock_reset(qy_lock_t *lock) { atomic_store_explicit(&lock->state, 0, memory_order_release); }

#endif
