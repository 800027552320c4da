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
#define WAITING 510u  // blocks in a piece of 4 KiB
#define ROUND 16u     // frees of a thread, or so many bytes, from one look at what is due to the next
#define ROUND_BYTES ((size_t)64 << 10)
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
    _Atomic int64_t live;                // bytes; of one stripe it may be less than 0
} stripe_t;
static stripe_t stripes[QY_CHECK_STRIPES];
static _Atomic uint32_t holds, draining;  // sweeps going on; threads that let blocks leave

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

void qy_check_live_add(int64_t bytes) {
    qy_check_count(&stripe_mine()->live, bytes);
}

static size_t stripes_sum(bool live) {
    int64_t sum = 0;
    for (unsigned i = 0; i < QY_CHECK_STRIPES; i++)
        sum += atomic_load_explicit(live ? &stripes[i].live : &stripes[i].held, memory_order_relaxed);
    return sum < 0 ? 0 : (size_t)sum;
}

size_t qy_check_live_bytes(void) { return stripes_sum(true); }

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

static bool quarantine_enter(stripe_t *s, const qy_check_place_t *place) {
    stripe_take(s);
    waiting_t *w = waiting_room(s);
    if (w) {
        w->block[w->first + w->count++] = place->begin;
        s->blocks++;
        held_add(s, (int64_t)place->room);
    }
    stripe_drop(s);
    return w != NULL;
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

// The oldest ones, as many as free *excess bytes, at most BATCH. They were not touched for long: what is read of them
// next is on its way from memory while the others are looked up.
static unsigned quarantine_leave(stripe_t *s, size_t *excess, qy_check_place_t *ret_places) {
    unsigned count = 0;
    stripe_take(s);
    for (waiting_t *w; *excess && count < BATCH && (w = s->oldest) && w->count; count++) {
        uintptr_t block = w->block[w->first];
        qy_check_place_t place = qy_check_place(block);
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
    atomic_fetch_sub(&draining, 1);
}

// A thread that lets blocks leave is soon done; one that was stopped in the middle is not waited for.
void qy_check_quarantine_hold(void) {
    atomic_fetch_add(&holds, 1);
    for (unsigned i = 0; i < WAITS && atomic_load(&draining); i++) {
        _Atomic uint32_t never = 0;
        qy_os_wait(&never, 0, WAIT_NS);
    }
}

void qy_check_quarantine_go_on(void) { atomic_fetch_sub(&holds, 1); }

void qy_check_quarantine(const qy_check_place_t *place, qy_check_leave_t *leave) {
    stripe_t *s = stripe_mine();
    if (!quarantine_enter(s, place)) {
        leave(place);
        return;
    }
    qy_check_thread_t *t = &qy_check_thread;
    t->waiting += (uint32_t)qy_min(place->room, ROUND_BYTES);
    if (QY_LIKELY(t->waiting < ROUND_BYTES && ++t->frees < ROUND)) return;
    t->waiting = t->frees = 0;
    size_t limit = quarantine_limit(), held = stripes_sum(false);
    if (held > limit) quarantine_drain(s, held - limit, leave);
}

qy_check_quarantine_stats_t qy_check_quarantine_stats(void) {
    qy_check_quarantine_stats_t st = {.limit = quarantine_limit(), .bytes = stripes_sum(false)};
    for (unsigned i = 0; i < QY_CHECK_STRIPES; i++) {
        qy_lock_take(&stripes[i].lock);
        st.blocks += stripes[i].blocks;
        st.passed += stripes[i].passed;
        qy_lock_drop(&stripes[i].lock);
    }
    return st;
}
