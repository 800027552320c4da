// SPDX-License-Identifier: MIT
// lock.h: a 4-byte mutex: one compare-and-swap to take, one exchange to release, a short spin when
// there is more than one CPU, then sleep. No thread identity (so a fork child may reset it), no
// allocation, zero is "free".
#ifndef QY_RT_LOCK_H
#define QY_RT_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

// 0 free, 1 held, 2 held and waited for, 3 frozen: held by a thread that is forking
typedef struct qy_lock {
    _Atomic uint32_t state;
} qy_lock_t;

#define QY_LOCK_FROZEN 3u

void qy_lock_slow(qy_lock_t *lock);
void qy_unlock_slow(qy_lock_t *lock);

static inline bool qy_lock_try(qy_lock_t *lock) {
    uint32_t free_state = 0;
    return atomic_compare_exchange_strong_explicit(&lock->state, &free_state, 1, memory_order_acquire, memory_order_relaxed);
}
static inline void qy_lock_take(qy_lock_t *lock) {
    if (__builtin_expect(!qy_lock_try(lock), 0)) qy_lock_slow(lock);
}
static inline void qy_lock_drop(qy_lock_t *lock) {
    // A frozen lock can only be dropped by the forking thread, which passed through it.
    if (__builtin_expect(atomic_load_explicit(&lock->state, memory_order_relaxed) == QY_LOCK_FROZEN, 0)) return;
    if (__builtin_expect(atomic_exchange_explicit(&lock->state, 0, memory_order_release) == 2, 0)) qy_unlock_slow(lock);
}
// Around a fork: take the lock and mark it frozen. Until it is thawed, the forking thread passes
// through qy_lock_take and qy_lock_drop without effect (fork handlers of others may allocate); all
// other threads wait. Locks are frozen and thawed by one thread at a time.
void qy_lock_freeze(qy_lock_t *lock);
void qy_lock_thaw(qy_lock_t *lock);

// In the child of a fork, where the parent's holder is this thread and no waiter exists.
static inline void qy_lock_reset(qy_lock_t *lock) { atomic_store_explicit(&lock->state, 0, memory_order_release); }

#endif
