// SPDX-License-Identifier: MIT
// lock.c: the slow halves of lock.h.
//
// State 2 ("somebody may sleep") is set by everyone who goes to sleep and kept by everyone who
// wakes: whoever takes the lock after having waited cannot know whether others still wait, so it
// takes it as 2 and pays one superfluous wake at the end. No wake-up is ever lost.
#include "rt/lock.h"

#include "base/compiler.h"
#include "os/os.h"

#define SPINS 40  // about 2 us: longer than our critical sections, shorter than a sleep and a wake

static bool many_cpus(void) {
    static _Atomic unsigned cached;  // 0: not asked yet
    unsigned n = atomic_load_explicit(&cached, memory_order_relaxed);
    if (!n) {
        n = qy_os_cpu_affinity();
        atomic_store_explicit(&cached, n, memory_order_relaxed);
    }
    return n > 1;
}

static void pause_cpu(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::
                         : "memory");  // yield is a no-op on most cores; isb takes a while
#endif
}

// The thread that froze the locks, while it forks. Only one thread does at a time: it holds them all.
// A token rather than an id: in the child, others' fork handlers may come before ours.
static _Atomic uintptr_t frozen_by;

QY_COLD void qy_lock_slow(qy_lock_t *lock) {
    if (many_cpus()) {
        for (int i = 0; i < SPINS; i++) {
            uint32_t state = atomic_load_explicit(&lock->state, memory_order_relaxed);
            if (state >= 2) break;  // others already sleep, or a fork is on: no spinning past them
            if (state == 0 && qy_lock_try(lock)) return;
            pause_cpu();
        }
    }
    for (;;) {
        // Acquire: who froze the lock said who it is before.
        uint32_t state = atomic_load_explicit(&lock->state, memory_order_acquire);
        if (state == QY_LOCK_FROZEN) {
            if (atomic_load_explicit(&frozen_by, memory_order_relaxed) == qy_os_thread_token()) return;
            qy_os_wait(&lock->state, QY_LOCK_FROZEN, 0);
        } else if (state == 0) {
            if (atomic_compare_exchange_strong_explicit(&lock->state, &state, 2, memory_order_acquire, memory_order_relaxed)) return;
        } else if (state == 2 || atomic_compare_exchange_strong_explicit(&lock->state, &state, 2, memory_order_relaxed, memory_order_relaxed)) {
            qy_os_wait(&lock->state, 2, 0);
        }
    }
}

QY_COLD void qy_unlock_slow(qy_lock_t *lock) { qy_os_wake(&lock->state, 1); }

void qy_lock_freeze(qy_lock_t *lock) {
    qy_lock_take(lock);
    atomic_store_explicit(&frozen_by, qy_os_thread_token(), memory_order_relaxed);
    atomic_store_explicit(&lock->state, QY_LOCK_FROZEN, memory_order_release);
}

void qy_lock_thaw(qy_lock_t *lock) {
    atomic_store_explicit(&lock->state, 0, memory_order_release);
    qy_os_wake(&lock->state, UINT32_MAX >> 1);
}
