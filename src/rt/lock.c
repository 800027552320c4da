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
#include "rt/diag.h"

// 25 to 45 us: about what a sleep and a wake take in a virtual machine, and longer than a critical section with a
// system call in it mostly is. Besides, the kernel likes to wake a sleeper on the processor of who wakes it; the two
// then share it, with another one idle, for some milliseconds.
#define SPINS 1000

// Much longer than locks are held, other than by a fork or a walk.
#define NAP_NS UINT64_C(5000000)

void (*qy_lock_before)(const qy_lock_t *lock);

static _Atomic unsigned cpus;  // 0: not known yet

void qy_lock_ask_cpus(void) { atomic_store_explicit(&cpus, qy_os_cpus_together(), memory_order_relaxed); }

unsigned qy_lock_cpus(void) { return atomic_load_explicit(&cpus, memory_order_relaxed); }

static bool many_cpus(void) {
    if (!qy_lock_cpus()) qy_lock_ask_cpus();
    return qy_lock_cpus() > 1;
}

// Who sleeps does so on the half of the word that has the kind. If another holder's is the same, its lock is held and
// waited for as well.
static _Atomic uint32_t *half(qy_lock_t *lock) {
    return (_Atomic uint32_t *)&lock->state + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

typedef struct wish {
    uint64_t take_as;   // holder and kind, if it is free. 0: it is left so
    uint64_t deadline;  // 0: none
    bool not_out;       // give up if its holder is out, or goes
} wish_t;

// While the holder is most likely to let go in a moment: it runs on another processor.
static bool spin(qy_lock_t *lock, const wish_t *w) {
    for (int i = 0; i < SPINS; i++) {
        uint64_t state = atomic_load_explicit(&lock->state, memory_order_relaxed);
        // a fork takes longer, and what is out
        if ((state & QY_LOCK_KIND) >= QY_LOCK_FROZEN || state >> QY_LOCK_BITS == qy_os_thread_token()) return false;
        if (state == 0 && atomic_compare_exchange_strong_explicit(
                              &lock->state, &state, w->take_as, memory_order_acquire, memory_order_relaxed))
            return true;
        qy_pause();
    }
    return false;
}

// A thread made by clone() without thread-local storage of its own shares its parent's token. What such a one holds is
// let go of, if late where it gets no processor; what this thread holds itself is not.
#define OWN_NS UINT64_C(1000000000)

_Noreturn static void waits_for_itself(const qy_lock_t *lock, bool out) {
    if (out) qy_fatal(QY_FAULT_CALL_WITHIN, lock, "of what is being walked, by the function that the walk calls");
    qy_fatal(QY_FAULT_CALL_WITHIN, lock, "malloc called by a signal handler that interrupted it, or a pool likewise");
}

// Sleep until the lock is free, and take it as the wish says, or pass through what is frozen by this thread. False: the
// wish says not to wait, or not any longer.
static bool wait_for(qy_lock_t *lock, const wish_t *w) {
    uint64_t mine = qy_lock_holder(), own_since = 0;
    bool slept = false;
    if (many_cpus() && spin(lock, w)) return true;
    for (;;) {
        uint64_t state = atomic_load_explicit(&lock->state, memory_order_relaxed), kind = state & QY_LOCK_KIND, now = 0;
        if (state == (mine | QY_LOCK_FROZEN)) return true;
        if (state == 0) {
            if (atomic_compare_exchange_strong_explicit(
                    &lock->state, &state, w->take_as, memory_order_acquire, memory_order_relaxed))
                return true;
            continue;
        }
        if ((w->not_out && (kind & QY_LOCK_OUT)) || (w->deadline && (now = qy_os_now_ns()) >= w->deadline)) break;
        if (state >> QY_LOCK_BITS != mine >> QY_LOCK_BITS) own_since = 0;
        else if (!own_since) own_since = qy_os_now_ns();
        else if (qy_os_now_ns() - own_since > OWN_NS) waits_for_itself(lock, (kind & QY_LOCK_OUT) != 0);
        if ((kind & QY_LOCK_FROZEN) == QY_LOCK_HELD) {
            uint64_t waited = state + (QY_LOCK_WAITED - QY_LOCK_HELD);
            if (!atomic_compare_exchange_strong_explicit(
                    &lock->state, &state, waited, memory_order_relaxed, memory_order_relaxed))
                continue;
            state = waited;
        }
        uint64_t rest = w->deadline ? w->deadline - now : NAP_NS;
        qy_os_wait(half(lock), (uint32_t)state, rest < NAP_NS ? rest : NAP_NS);
        slept = true;
    }
    if (slept) qy_os_wake(half(lock), 1);  // the wake-up that this one may have had was for somebody
    return false;
}

QY_NOINLINE void qy_lock_slow(qy_lock_t *lock) {
    wait_for(lock, &(wish_t){.take_as = qy_lock_holder() | QY_LOCK_WAITED});
}
void qy_lock_await(qy_lock_t *lock) { wait_for(lock, &(wish_t){.take_as = 0}); }
QY_NOINLINE void qy_unlock_slow(qy_lock_t *lock) { qy_os_wake(half(lock), 1); }

// ---- calling out ----------------------------------------------------------------------------------

// A lock that is frozen by this thread, which passed through it, stays as it is. Who waits looks again: its word has
// changed.
void qy_lock_go_out(qy_lock_t *lock) {
    if (!qy_lock_is_mine(lock)) return;
    if (atomic_fetch_or_explicit(&lock->state, QY_LOCK_OUT, memory_order_relaxed) & QY_LOCK_WAITED)
        qy_os_wake(half(lock), UINT32_MAX >> 1);
}
void qy_lock_come_back(qy_lock_t *lock) {
    if (qy_lock_is_mine(lock)) atomic_fetch_and_explicit(&lock->state, ~(uint64_t)QY_LOCK_OUT, memory_order_relaxed);
}

bool qy_lock_take_unless_out(qy_lock_t *lock) {
    return qy_lock_try(lock) ||
           wait_for(lock, &(wish_t){.take_as = qy_lock_holder() | QY_LOCK_WAITED, .not_out = true});
}

// ---- forks ------------------------------------------------------------------------------------------

static bool try_freeze(qy_lock_t *lock) {
    uint64_t free_state = 0;
    return atomic_compare_exchange_strong_explicit(
        &lock->state, &free_state, qy_lock_holder() | QY_LOCK_FROZEN, memory_order_acquire, memory_order_relaxed);
}
void qy_lock_freeze(qy_lock_t *lock) {
    if (!try_freeze(lock)) wait_for(lock, &(wish_t){.take_as = qy_lock_holder() | QY_LOCK_FROZEN});
}
bool qy_lock_freeze_unless_out(qy_lock_t *lock) {
    if (qy_lock_is_mine(lock)) return false;
    return try_freeze(lock) || wait_for(lock, &(wish_t){.take_as = qy_lock_holder() | QY_LOCK_FROZEN, .not_out = true});
}
bool qy_lock_freeze_until(qy_lock_t *lock, uint64_t deadline) {
    if (qy_lock_is_mine(lock)) return false;
    return try_freeze(lock) ||
           wait_for(lock, &(wish_t){.take_as = qy_lock_holder() | QY_LOCK_FROZEN, .deadline = deadline});
}

void qy_lock_thaw(qy_lock_t *lock) {
    atomic_store_explicit(&lock->state, 0, memory_order_release);
    qy_os_wake(half(lock), UINT32_MAX >> 1);
}

void qy_lock_fork(qy_lock_t *lock, int phase) {
    if (qy_lock_is_mine(lock)) return;
    if (phase == 0) qy_lock_freeze(lock);
    else if (phase == 2) qy_lock_reset(lock);
    else if (qy_lock_is_frozen(lock)) qy_lock_thaw(lock);
}
