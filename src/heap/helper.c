// SPDX-License-Identifier: MIT
// helper.c: see helper.h.
#include "heap/helper.h"

#include "heap/atfork.h"

#include "os/os.h"
#include "pages/purging.h"
#include "rt/opts.h"

#define STACK_BYTES ((size_t)64 * 1024)
// so many rounds without work, and it ends though there is a rest: locked pages, denied
#define QUIET_REST 40
#define QUIET 2                               // ... and there is none
#define REST_NS UINT64_C(20000000)            // it does not begin again so soon after it was made to end
#define RETRY_NS UINT64_C(2000000000)         // the kernel refused a thread: tried again after this time, ...
#define RETRY_NS_MOST UINT64_C(128000000000)  // ... twice as long after each time, up to this one
#define JOIN_NS UINT64_C(1000000)

enum { NONE,
    RUNS,
    LEAVING,  // it is about to look whether somebody asked for it after all
    IMPOSSIBLE };

static struct {
    // of who starts or ends it. Inside of all others where it is tried, outside of all where it is waited for
    qy_lock_t lock;
    _Atomic uint32_t state;
    _Atomic uint32_t alive;       // cleared by the kernel when the thread has let go of its stack
    _Atomic uint32_t asked;       // somebody found it running and left the work to it
    _Atomic uint32_t to_end;      // the word it sleeps on
    _Atomic uint64_t not_before;  // it does not begin before this time
    uint64_t retry_ns;            // [lock] how long it waited for the last one; 0: it was not refused yet
    void *stack;                  // [lock]
    qy_helper_round_t *round;     // [lock], and the thread
    const _Atomic uint64_t *last_ns;
} helper;

bool qy_helper_at_once;

bool qy_helper_is_to_end(void) { return atomic_load_explicit(&helper.to_end, memory_order_relaxed) != 0; }

// ---- the thread itself --------------------------------------------------------------------------------
// Nothing here, nor in what it calls, may use errno, libc or thread-local storage.

static void sleep_for_an_epoch(void) {
    uint64_t epoch = qy_opts.purge_delay * 1000000 / 2,
             since = qy_os_now_coarse_ns() - atomic_load_explicit(helper.last_ns, memory_order_relaxed);
    qy_os_wait(&helper.to_end, 0, since < epoch ? epoch - since : epoch);
}

// Who asked since the last round began found it running. Who asks from here on finds that it leaves, says so as well,
// and waits for what comes of that: it stays, or is gone.
static bool may_leave(void) {
    atomic_store(&helper.state, LEAVING);
    if (!atomic_load(&helper.asked)) return true;
    atomic_store(&helper.state, RUNS);
    return false;
}

static void run(void *unused) {
    (void)unused;
    if (!qy_os_sandbox_thread()) {
        atomic_store_explicit(&helper.not_before, UINT64_MAX, memory_order_relaxed);
        atomic_store_explicit(&helper.state, IMPOSSIBLE, memory_order_release);
        return;
    }
    for (int quiet = 0; !qy_helper_is_to_end();) {
        sleep_for_an_epoch();
        if (qy_helper_is_to_end()) break;
        atomic_store(&helper.asked, 0);  // whatever they saw is there for this round
        bool rest = false;
        size_t work = helper.round(&rest);
        if (work == SIZE_MAX) continue;
        quiet = work ? 0 : quiet + 1;
        if (quiet < (rest ? QUIET_REST : QUIET)) continue;
        if (may_leave()) return;
        quiet = 0;
    }
}

// ---- the others -----------------------------------------------------------------------------------------

bool qy_helper_runs(void) {
    if (atomic_load_explicit(&helper.state, memory_order_relaxed) != RUNS) return false;
    // it is just being started; or a filter has killed it
    if (!atomic_load_explicit(&helper.alive, memory_order_relaxed)) return false;
    if (!atomic_load(&helper.asked)) atomic_store(&helper.asked, 1);
    return atomic_load(&helper.state) == RUNS;
}

bool qy_helper_impossible(void) {
    return atomic_load_explicit(&helper.state, memory_order_relaxed) == IMPOSSIBLE &&
           qy_os_now_coarse_ns() < atomic_load_explicit(&helper.not_before, memory_order_relaxed);
}

// The last one leaves, or stays because somebody asks. True: it has left.
static bool has_left(void) {
    atomic_store(&helper.asked, 1);
    for (int i = 0; i < 16 && atomic_load(&helper.state) != RUNS; i++)
        if (qy_os_join(&helper.alive, JOIN_NS)) return true;
    return false;
}

// A thread that ended otherwise than by `run` was killed, by a filter.
static bool spawn_locked(void) {
    QY_NEEDS(&helper.lock);
    if (atomic_load(&helper.state) == RUNS) return false;
    if (!helper.stack) helper.stack = qy_os_map(STACK_BYTES, qy_os_page_size(), NULL);
    atomic_store(&helper.asked, 0);
    atomic_store(&helper.state, RUNS);
    return helper.stack && qy_os_spawn(run, NULL, helper.stack, STACK_BYTES, &helper.alive);
}

static void start_locked(void) {
    QY_NEEDS(&helper.lock);
    uint64_t now = qy_os_now_coarse_ns();
    if (now < atomic_load_explicit(&helper.not_before, memory_order_relaxed)) return;
    if ((atomic_load(&helper.alive) && !has_left()) || spawn_locked()) return;
    helper.retry_ns = helper.retry_ns ? qy_min(2 * helper.retry_ns, RETRY_NS_MOST) : RETRY_NS;
    atomic_store_explicit(&helper.not_before, now + helper.retry_ns, memory_order_relaxed);
    atomic_store_explicit(&helper.state, IMPOSSIBLE, memory_order_release);
}

void qy_helper_start(qy_helper_round_t *round, const _Atomic uint64_t *last_ns) {
    if (!qy_lock_try(&helper.lock)) return;
    qy_atfork_needed();
    helper.round = round;
    helper.last_ns = last_ns;
    start_locked();
    qy_lock_drop(&helper.lock);
}

static void end_locked(void) {
    QY_NEEDS(&helper.lock);
    if (!atomic_load(&helper.alive)) return;
    atomic_store(&helper.to_end, 1);
    qy_os_wake(&helper.to_end, 1);
    qy_os_join(&helper.alive, 0);
    atomic_store(&helper.to_end, 0);
    if (atomic_load(&helper.state) == IMPOSSIBLE) return;
    atomic_store_explicit(&helper.not_before, qy_os_now_coarse_ns() + REST_NS, memory_order_relaxed);
    atomic_store(&helper.state, NONE);
}

void qy_helper_end(void) {
    // A signal handler forks that interrupted who starts it, or who ends it.
    if (!atomic_load(&helper.alive) || qy_lock_is_mine(&helper.lock)) return;
    qy_lock_take(&helper.lock);
    end_locked();
    qy_lock_drop(&helper.lock);
}

void qy_helper_never(void) {
    if (qy_lock_is_mine(&helper.lock)) return;  // a signal handler puts the filter on
    qy_lock_take(&helper.lock);
    end_locked();
    atomic_store_explicit(&helper.not_before, UINT64_MAX, memory_order_relaxed);
    atomic_store_explicit(&helper.state, IMPOSSIBLE, memory_order_release);
    qy_lock_drop(&helper.lock);
}

qy_helper_hold_t qy_helper_hold(void) {
    if (!qy_opts.purge_thread || qy_helper_impossible() || qy_os_is_watched()) return QY_HELPER_INLINE;
    return qy_lock_try(qy_purging_lock()) ? QY_HELPER_HELD : QY_HELPER_BUSY;
}
void qy_helper_let_go(void) { qy_lock_drop(qy_purging_lock()); }

// The child has none, whatever its parent had.
void qy_helper_after_fork(void) {
    atomic_store_explicit(&helper.alive, 0, memory_order_relaxed);
    atomic_store_explicit(&helper.to_end, 0, memory_order_relaxed);
    if (atomic_load_explicit(&helper.state, memory_order_relaxed) != IMPOSSIBLE) {
        atomic_store_explicit(&helper.state, NONE, memory_order_relaxed);
        atomic_store_explicit(&helper.not_before, 0, memory_order_relaxed);
    }
    qy_lock_fork(&helper.lock, 2);
}
