// SPDX-License-Identifier: MIT
// quarantine.c: see quarantine.h.
#include "check/quarantine.h"

#include "base/num.h"
#include "check/alone.h"
#include "check/memory.h"
#include "check/options.h"
#include "check/threads.h"

#define LEAST ((size_t)8 << 20)
#define MOST ((size_t)256 << 20)
#define WAITING 510u                     // blocks in a piece of 4 KiB
#define ROUND_BYTES ((int64_t)64 << 10)  // so many end a round, too
#define BATCH 16u
#define WAIT_NS UINT64_C(1000000)
#define WAITS 1000u

typedef struct waiting {
    struct waiting *next;
    uint32_t first, count;
    uintptr_t block[WAITING];
} waiting_t;

typedef struct stripe {
    QY_ALIGNED(QY_CACHE_LINE)
    qy_lock_t lock;
    waiting_t *oldest, *newest, *spare;  // [lock]
    uint64_t passed;                     // [lock]
    uint64_t blocks;                     // [lock]
    _Atomic int64_t held;                // [lock, to write] bytes that wait
} stripe_t;
static stripe_t stripes[QY_CHECK_STRIPES];
qy_check_account_t qy_check_accounts[QY_CHECK_ACCOUNTS + 1];
// Sweeps going on; threads that let blocks leave. 0 in the child of a fork, also where a handler that forked has
// interrupted one of them.
static _Atomic uint32_t holds, draining;

qy_lock_t *qy_check_quarantine_lock(unsigned i) { return &stripes[i].lock; }

static void stripe_take(stripe_t *s) {
    uint64_t nobody = 0;
    if (!qy_check_is_alone() || !qy_check_exchange(&s->lock.state, &nobody, qy_lock_holder() | QY_LOCK_HELD))
        qy_lock_take(&s->lock);
}

static void stripe_drop(stripe_t *s) {
    uint64_t mine = qy_lock_holder() | QY_LOCK_HELD;  // and nobody waits
    if (!qy_check_is_alone() || !qy_check_exchange(&s->lock.state, &mine, 0)) qy_lock_drop(&s->lock);
}

static void held_add(stripe_t *s, int64_t bytes) {
    QY_NEEDS(&s->lock);
    int64_t held = atomic_load_explicit(&s->held, memory_order_relaxed);
    atomic_store_explicit(&s->held, held + bytes, memory_order_relaxed);
}

static stripe_t *stripe_mine(void) { return &stripes[qy_check_thread_number() % QY_CHECK_STRIPES]; }

static size_t not_less_than_0(int64_t sum) { return sum < 0 ? 0 : (size_t)sum; }

// Accounts that a thread has had: the others are 0.
static unsigned accounts_used(void) { return (unsigned)qy_min(qy_check_threads_numbered(), QY_CHECK_ACCOUNTS) + 1; }

size_t qy_check_live_bytes(void) {
    int64_t sum = 0;
    for (unsigned i = 0, end = accounts_used(); i < end; i++)
        sum += atomic_load_explicit(&qy_check_accounts[i].live, memory_order_relaxed);
    return not_less_than_0(sum);
}

static size_t held_bytes(void) {
    int64_t sum = 0;
    for (unsigned i = 0; i < QY_CHECK_STRIPES; i++)
        sum += atomic_load_explicit(&stripes[i].held, memory_order_relaxed);
    return not_less_than_0(sum);
}

static size_t quarantine_limit(void) {
    if (qy_check_options.quarantine) return qy_check_options.quarantine;
    return qy_min(MOST, LEAST + qy_check_live_bytes() / 4);
}

// A piece with room for one more. NULL: no memory.
static waiting_t *waiting_room(stripe_t *s) {
    QY_NEEDS(&s->lock);
    waiting_t *w = s->newest;
    if (w && w->first + w->count < WAITING) return w;
    w = s->spare;
    if (w) s->spare = w->next;
    else if (!(w = qy_check_memory(sizeof *w, false))) return NULL;
    *w = (waiting_t){.next = NULL};
    if (s->newest) s->newest->next = w;
    else s->oldest = w;
    return s->newest = w;
}

// Returns how many of the blocks are in. Fewer than all: no memory.
static uint32_t quarantine_enter(stripe_t *s, const uintptr_t *blocks, uint32_t count, int64_t held) {
    uint32_t i = 0;
    stripe_take(s);
    for (waiting_t *w; i < count && (w = waiting_room(s)); i++) w->block[w->first + w->count++] = blocks[i];
    s->blocks += i;
    held_add(s, held);
    stripe_drop(s);
    return i;
}

static void oldest_pop(stripe_t *s, waiting_t *w) {
    QY_NEEDS(&s->lock);
    w->first++;
    s->blocks--;
    s->passed++;
    if (!--w->count && w != s->newest) {
        s->oldest = w->next;
        w->next = s->spare;
        s->spare = w;
    } else if (!w->count) {
        w->first = 0;
    }
}

// Of a block whose record is FREED: no other sheet can come meanwhile.
QY_INLINE qy_check_place_t quarantine_place(uintptr_t block) {
    qy_check_place_t place = qy_check_place_quickly(block);
    return QY_LIKELY(place.record != NULL) ? place : qy_check_place(block);
}

// The oldest ones, as many as free *excess bytes, at most BATCH. They were not touched for long: what is read of them
// next is on its way from memory while the others are looked up.
static unsigned quarantine_leave(stripe_t *s, size_t *excess, qy_check_place_t *ret_places) {
    unsigned count = 0;
    stripe_take(s);
    for (waiting_t *w; *excess && count < BATCH && (w = s->oldest) && w->count; count++) {
        uintptr_t block = w->block[w->first];
        qy_check_place_t place = quarantine_place(block);
        qy_assert(place.record && place.begin == block);
        __builtin_prefetch(place.record, 1);
        __builtin_prefetch((const void *)block);
        __builtin_prefetch((const void *)(block + qy_min(place.room, 2 * QY_CACHE_LINE) - 1));
        ret_places[count] = place;
        oldest_pop(s, w);
        held_add(s, -(int64_t)place.room);
        *excess -= qy_min(*excess, place.room);
    }
    stripe_drop(s);
    return count;
}

static void count_down(_Atomic uint32_t *count) {
    uint32_t n = atomic_load(count);
    while (n && !atomic_compare_exchange_weak(count, &n, n - 1)) {}
}

// So many bytes too many wait: the oldest of this stripe leave, then those of others, which may be of idle threads.
static void quarantine_drain(stripe_t *s, size_t excess, qy_check_leave_t *leave) {
    atomic_fetch_add(&draining, 1);
    for (unsigned empty = 0; excess && empty < QY_CHECK_STRIPES && !atomic_load(&holds);) {
        qy_check_place_t places[BATCH];
        unsigned count = quarantine_leave(s, &excess, places);
        for (unsigned i = 0; i < count; i++) leave(&places[i]);
        if (count) continue;
        s = &stripes[(unsigned)(s - stripes + 1) % QY_CHECK_STRIPES];
        empty++;
    }
    count_down(&draining);
}

// A thread that lets blocks leave is soon done; one that was stopped in the middle is not waited for.
void qy_check_quarantine_hold(void) {
    atomic_fetch_add(&holds, 1);
    for (unsigned i = 0; i < WAITS && atomic_load(&draining); i++) {
        _Atomic uint32_t never = 0;
        qy_os_wait(&never, 0, WAIT_NS);
    }
}

void qy_check_quarantine_go_on(void) { count_down(&holds); }

void qy_check_quarantine_in_child(void) {
    atomic_store(&draining, 0);
    atomic_store(&holds, 0);
}

static void blocks_enter(const uintptr_t *blocks, uint32_t count, int64_t held, qy_check_leave_t *leave) {
    stripe_t *s = stripe_mine();
    for (uint32_t i = quarantine_enter(s, blocks, count, held); QY_UNLIKELY(i < count); i++) {
        qy_check_place_t place = quarantine_place(blocks[i]);
        stripe_take(s);
        held_add(s, -(int64_t)place.room);
        stripe_drop(s);
        leave(&place);
    }
}

// A round is over: others leave if there are too many now.
static void quarantine_round(qy_check_leave_t *leave) {
    size_t limit = quarantine_limit(), held = held_bytes();
    if (held > limit) quarantine_drain(stripe_mine(), held - limit, leave);
}

// Of a thread without an account, or a signal handler.
QY_NOINLINE static void block_enters(uintptr_t block, int64_t room, qy_check_leave_t *leave) {
    qy_check_thread_t *t = &qy_check_thread;
    blocks_enter(&block, 1, room, leave);
    t->waiting += (uint32_t)qy_min(room, ROUND_BYTES);
    if (t->waiting < ROUND_BYTES && ++t->frees < QY_CHECK_ROUND) return;
    t->waiting = t->frees = 0;
    quarantine_round(leave);
}

// The account is empty before its blocks enter: a signal handler may free others meanwhile.
static void account_settle(qy_check_account_t *a, qy_check_leave_t *leave) {
    uint32_t count = atomic_load_explicit(&a->blocks, memory_order_relaxed);
    int64_t held = atomic_load_explicit(&a->held, memory_order_relaxed);
    uintptr_t blocks[QY_CHECK_ROUND];
    for (uint32_t i = 0; i < count; i++) blocks[i] = a->block[i];
    atomic_store_explicit(&a->blocks, 0, memory_order_relaxed);
    atomic_store_explicit(&a->held, 0, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(&a->busy, false, memory_order_relaxed);
    blocks_enter(blocks, count, held, leave);
    quarantine_round(leave);
}

void qy_check_quarantine(uintptr_t block, size_t room, qy_check_leave_t *leave) {
    uint16_t number = qy_check_thread_number();
    bool has = number <= QY_CHECK_ACCOUNTS;
    qy_check_account_t *a = &qy_check_accounts[has ? number : 0];
    if (QY_UNLIKELY(!has || atomic_load_explicit(&a->busy, memory_order_relaxed))) {
        block_enters(block, (int64_t)room, leave);
        return;
    }
    atomic_store_explicit(&a->busy, true, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    uint32_t count = atomic_load_explicit(&a->blocks, memory_order_relaxed);
    int64_t held = atomic_load_explicit(&a->held, memory_order_relaxed) + (int64_t)room;
    a->block[count++] = block;
    atomic_store_explicit(&a->blocks, count, memory_order_relaxed);
    atomic_store_explicit(&a->held, held, memory_order_relaxed);
    if (QY_UNLIKELY(count == QY_CHECK_ROUND || held >= ROUND_BYTES)) {
        account_settle(a, leave);
        return;
    }
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(&a->busy, false, memory_order_relaxed);
}

qy_check_quarantine_stats_t qy_check_quarantine_stats(void) {
    qy_check_quarantine_stats_t st = {.limit = quarantine_limit(), .bytes = held_bytes()};
    for (unsigned i = 0; i < QY_CHECK_STRIPES; i++) {
        bool within = qy_lock_is_mine(&stripes[i].lock);  // a signal handler ends the process
        if (!within) qy_lock_take(&stripes[i].lock);
        st.blocks += stripes[i].blocks;
        st.passed += stripes[i].passed;
        if (!within) qy_lock_drop(&stripes[i].lock);
    }
    for (unsigned i = 1, end = accounts_used(); i < end; i++) {
        st.blocks += atomic_load_explicit(&qy_check_accounts[i].blocks, memory_order_relaxed);
        st.bytes += not_less_than_0(atomic_load_explicit(&qy_check_accounts[i].held, memory_order_relaxed));
    }
    return st;
}
