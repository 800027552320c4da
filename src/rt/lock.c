// SPDX-License-Identifier: MIT
// lock.c: the slow halves of lock.h.
//
// WAITED ("somebody may sleep") is set by everyone who goes to sleep and kept by everyone who
// wakes: whoever takes the lock after having waited cannot know whether others still wait, so it
// takes it as WAITED and pays one superfluous wake at the end. So no wake-up is lost, but one may come late: a signal
// handler can interrupt a thread that has dropped a lock and not yet woken who waits, or that was woken and has not yet
// taken it. A handler that forks then waits for all others, and one of these may sleep at the free lock with a lock in
// hand that the fork wants. So nobody sleeps for long without looking.
#include "rt/lock.h"

#include "base/compiler.h"
#include "os/os.h"

// 25 to 45 us: about what a sleep and a wake take in a virtual machine, and longer than a critical section with a system call in it
// mostly is. Besides, the kernel likes to wake a sleeper on the processor of who wakes it; the two then share it, with another one
// idle, for some milliseconds.
#define SPINS 1000

// Much longer than locks are held, other than by a fork or a walk.
#define NAP_NS UINT64_C(5000000)

static _Atomic unsigned cpus;  // 0: not known yet

void qy_lock_ask_cpus(void) { atomic_store_explicit(&cpus, qy_os_cpus_together(), memory_order_relaxed); }

static bool many_cpus(void) {
    if (!atomic_load_explicit(&cpus, memory_order_relaxed)) qy_lock_ask_cpus();
    return atomic_load_explicit(&cpus, memory_order_relaxed) > 1;
}

QY_NOINLINE void qy_lock_slow(qy_lock_t *lock) {
    uint32_t mine = qy_lock_holder();
    if (many_cpus()) {
        for (int i = 0; i < SPINS; i++) {
            uint32_t state = atomic_load_explicit(&lock->state, memory_order_relaxed);
            if ((state & QY_LOCK_KIND) == QY_LOCK_FROZEN) break;  // a fork takes longer
            if (state == 0 && qy_lock_try(lock)) return;
            qy_pause();
        }
    }
    for (;;) {
        uint32_t state = atomic_load_explicit(&lock->state, memory_order_relaxed), kind = state & QY_LOCK_KIND;
        if (state == (mine | QY_LOCK_FROZEN)) return;
        if (state == 0) {
            if (atomic_compare_exchange_strong_explicit(&lock->state, &state, mine | QY_LOCK_WAITED, memory_order_acquire, memory_order_relaxed)) return;
        } else {
            uint32_t waited = (state & ~QY_LOCK_KIND) | QY_LOCK_WAITED;
            if (kind == QY_LOCK_FROZEN) waited = state;
            else if (kind == QY_LOCK_HELD && !atomic_compare_exchange_strong_explicit(&lock->state, &state, waited, memory_order_relaxed, memory_order_relaxed)) continue;
            qy_os_wait(&lock->state, waited, NAP_NS);
        }
    }
}

QY_NOINLINE void qy_unlock_slow(qy_lock_t *lock) { qy_os_wake(&lock->state, 1); }

void qy_lock_freeze(qy_lock_t *lock) {
    qy_lock_take(lock);
    atomic_store_explicit(&lock->state, qy_lock_holder() | QY_LOCK_FROZEN, memory_order_relaxed);
}

bool qy_lock_try_freeze(qy_lock_t *lock) {
    uint32_t free_state = 0;
    return atomic_compare_exchange_strong_explicit(&lock->state, &free_state, qy_lock_holder() | QY_LOCK_FROZEN, memory_order_acquire, memory_order_relaxed);
}

void qy_lock_thaw(qy_lock_t *lock) {
    atomic_store_explicit(&lock->state, 0, memory_order_release);
    qy_os_wake(&lock->state, UINT32_MAX >> 1);
}
