// SPDX-License-Identifier: MIT
// sync.c: waiting, first by looking, then in the kernel
//
// A waiter counts itself, looks again, sleeps while the word has the value it saw. Who sets the word looks for
// waiters afterwards. Both sides are sequentially consistent: one of them sees the other.
#include "replay.h"

#include <errno.h>
#include <linux/futex.h>
#include <limits.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"

static void futex_wait(_Atomic uint32_t *word, uint32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, (void *)0, (void *)0, 0);
}
static void futex_wake(_Atomic uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, (void *)0, (void *)0, 0);
}

// Is `seen` far enough for who waits for `wanted`? Numbers go round at 2^32, except in plans, which end before.
static bool reached(uint32_t seen, uint32_t wanted) { return (int32_t)(seen - wanted) >= 0; }

static bool look(_Atomic uint32_t *word, uint32_t wanted) {
    for (unsigned i = 0; i <= qy_config.spin; i++) {
        if (reached(atomic_load_explicit(word, memory_order_acquire), wanted)) return true;
        qy_pause();
    }
    return false;
}

static void await(qy_seat_t *seat, _Atomic uint32_t *word, uint32_t wanted, _Atomic uint32_t *waiters) {
    uint64_t start = qy_now_ns();
    if (!look(word, wanted)) {
        atomic_fetch_add(waiters, 1);
        for (uint32_t seen; !reached(seen = atomic_load(word), wanted);) futex_wait(word, seen);
        atomic_fetch_sub(waiters, 1);
    }
    seat->waited_ns += qy_now_ns() - start;
}

void qy_await_word(qy_seat_t *seat, _Atomic uint32_t *word, uint32_t wanted, _Atomic uint32_t *waiters) {
    if (!reached(atomic_load_explicit(word, memory_order_acquire), wanted)) await(seat, word, wanted, waiters);
}

void qy_set_word(_Atomic uint32_t *word, uint32_t value, _Atomic uint32_t *waiters) {
    atomic_store(word, value);
    if (atomic_load(waiters)) futex_wake(word);
}

// A stamp that is waited for is never passed: the next one is made by the waiter.
void qy_wait_stamp(qy_seat_t *seat, qy_slot_t *slot, uint32_t stamp) {
    qy_await_word(seat, &slot->stamp, stamp, &slot->waiters);
}
void qy_signal_stamp(qy_slot_t *slot, uint32_t stamp) { qy_set_word(&slot->stamp, stamp, &slot->waiters); }

// ---- epochs -------------------------------------------------------------------------------------------

void qy_enter_epoch(qy_seat_t *seat, qy_instance_t *instance, uint32_t epoch) {
    // One epoch at a time in a run that looks: a look sees what the plan has before it, and live bytes are near the
    // recorded ones.
    uint32_t window = qy_looks ? 1 : instance->plan->head->window;
    if (epoch >= window) qy_await_word(seat, &instance->frontier, epoch - window + 1, &instance->frontier_waiters);
}

// Move the frontier over all epochs that are done.
void qy_advance(qy_instance_t *instance) {
    uint32_t epochs = instance->plan->head->epochs, frontier = atomic_load(&instance->frontier);
    bool moved = false;
    while (frontier < epochs && !atomic_load(&instance->remaining[frontier])) {
        // Whoever of several gets there first; the others go on from what they find.
        if (atomic_compare_exchange_strong(&instance->frontier, &frontier, frontier + 1)) {
            frontier++;
            moved = true;
        }
    }
    if (moved && atomic_load(&instance->frontier_waiters)) futex_wake(&instance->frontier);
}

void qy_leave_epoch(qy_instance_t *instance, uint32_t epoch) {
    if (atomic_fetch_sub(&instance->remaining[epoch], 1) == 1) qy_advance(instance);
}

// ---- turns --------------------------------------------------------------------------------------------
// In a strict plan one thread at a time plays. The bell is each thread's own, so that one wakes and not all.

void qy_await_turn(qy_seat_t *seat, qy_instance_t *instance, uint32_t thread, uint32_t part) {
    if (atomic_load_explicit(&instance->turn, memory_order_acquire) == part) return;
    uint64_t start = qy_now_ns();
    qy_actor_t *actor = &instance->actors[thread];
    if (!look(&instance->turn, part)) {
        atomic_store(&actor->sleeping, 1);
        for (;;) {
            uint32_t bell = atomic_load(&actor->bell);
            if (atomic_load(&instance->turn) == part) break;
            futex_wait(&actor->bell, bell);
        }
        atomic_store(&actor->sleeping, 0);
    }
    seat->waited_ns += qy_now_ns() - start;
}

void qy_pass_turn(qy_instance_t *instance, uint32_t part) {
    atomic_store(&instance->turn, part + 1);
    if (part + 1 == instance->plan->head->segments) return;
    qy_actor_t *next = &instance->actors[instance->plan->parts[part + 1].thread];
    if (!atomic_load(&next->sleeping)) return;
    atomic_fetch_add(&next->bell, 1);
    futex_wake(&next->bell);
}

// ---- time ---------------------------------------------------------------------------------------------

// The kernel wakes us late by tens of microseconds: the last part is spent looking at the clock.
void qy_sleep_until(qy_seat_t *seat, uint64_t ns) {
    enum { SPIN = 60000 };
    uint64_t now = qy_now_ns();
    if (now > ns) {
        if (now - ns > seat->late_ns) seat->late_ns = now - ns;
        return;
    }
    if (ns - now > SPIN) {
        struct timespec until = {(time_t)((ns - SPIN) / 1000000000u), (long)((ns - SPIN) % 1000000000u)};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, 0) == EINTR) {}
    }
    while (qy_now_ns() < ns) qy_pause();
}
