// SPDX-License-Identifier: MIT
// dense.c: see dense.h.
#include "pages/dense.h"

#include "os/os.h"
#include "pages/chunk_state.h"
#include "pages/map.h"
#include "pages/units.h"
#include "rt/diag.h"
#include "rt/opts.h"

#define SPLITS_MOST 4096u  // chunks apart from their neighbours: each makes two mappings of the kernel's more

static struct {
    qy_dense_t policy;      // [lock: pages]
    _Atomic size_t chunks;  // asked ones. Under the lock; atomic for readers
    _Atomic size_t waste;   // of the policy, for readers
    unsigned splits;        // [lock: pages]
    _Atomic uint64_t forked_until;
} dense;

// ---- the policy -----------------------------------------------------------------------------------------

bool qy_dense_may(const qy_dense_t *d, size_t touched, size_t taken, uint64_t now) {
    qy_assert(taken <= QY_CHUNK);
    return touched >= QY_DENSE_LEAST && now >= d->rests_until &&
           d->waste + (QY_CHUNK - taken) <= qy_dense_most(touched);
}

void qy_dense_rest(qy_dense_t *d, uint64_t until) { d->rests_until = qy_max(d->rests_until, until); }

// One may be the scheduler's doing. Where the host has no memory at hand, or the kernel moves other pages first, the
// next one is slow too.
void qy_dense_took(qy_dense_t *d, uint64_t ns, uint64_t now) {
    if (ns < QY_DENSE_SLOW) {
        d->slow = 0;
        d->rest /= 2;
        return;
    }
    if (++d->slow < 2) return;
    d->slow = 0;
    d->rest = qy_min(qy_max(2 * d->rest, QY_DENSE_REST), QY_DENSE_REST_MOST);
    qy_dense_rest(d, now + d->rest);
}

// ---- in the page layer ----------------------------------------------------------------------------------

static void set_waste(size_t add, size_t sub) {
    QY_NEEDS(&qy_units.lock);
    qy_assert(dense.policy.waste + add >= sub);
    dense.policy.waste += add - sub;
    atomic_store_explicit(&dense.waste, dense.policy.waste, memory_order_relaxed);
}

static size_t clean_bytes(const qy_chunk_t *c) { return qy_bits_count(c->free & ~c->dirty) * QY_UNIT; }

static void set_huge(qy_chunk_t *c, uint8_t huge) {
    bool was = qy_dense_has(c);
    qy_units_count(&dense.chunks, huge && !was, !huge && was);
    atomic_store_explicit(&c->huge, huge, memory_order_relaxed);
}

// Where the kernel gives huge pages unasked, or never, there is nothing to ask for.
static bool huge_is_wanted(uint64_t now) {
    return qy_opts.huge_pages && qy_os_thp() == QY_OS_THP_ASKED && dense.splits < SPLITS_MOST &&
           now >= atomic_load_explicit(&dense.forked_until, memory_order_relaxed);
}

void qy_dense_begin(qy_chunk_t *c, qy_bits_t run, bool full) {
    QY_NEEDS(&qy_units.lock);
    if (~c->free || c->dirty) return;
    size_t taken = qy_bits_count(run) * QY_UNIT;
    uint64_t now = qy_os_now_coarse_ns();
    bool ask = full && huge_is_wanted(now) && qy_dense_may(&dense.policy, qy_units_touched_bytes(), taken, now);
    if (qy_dense_has(c)) set_waste(0, QY_CHUNK);
    if (ask) set_waste(QY_CHUNK, 0);
    if (ask != c->advised) qy_os_advise_huge(c->record.base, QY_CHUNK, ask);
    c->advised = ask;
    set_huge(c, ask ? QY_DENSE_UNTIMED : QY_DENSE_NONE);
}

void qy_dense_taken(const qy_chunk_t *c, size_t units) {
    if (qy_dense_has(c)) set_waste(0, units * QY_UNIT);
}
void qy_dense_given(const qy_chunk_t *c, size_t units) {
    if (qy_dense_has(c)) set_waste(units * QY_UNIT, 0);
}

void qy_dense_split(qy_chunk_t *c, bool all) {
    QY_NEEDS(&qy_units.lock);
    if (!qy_dense_has(c)) return;
    set_waste(0, clean_bytes(c));
    set_huge(c, QY_DENSE_NONE);
    if (all) return;  // as before the first touch
    qy_os_advise_huge(c->record.base, QY_CHUNK, false);
    c->advised = false;
    dense.splits++;
}

void qy_dense_goes(const char *base, size_t bytes) {
    for (const char *at = base, *end = base + bytes; at < end;) {
        qy_chunk_t *c = qy_map_chunk(at);
        const char *next = (const char *)qy_round_down((uintptr_t)at, QY_CHUNK) + QY_CHUNK;
        if (c && qy_dense_has(c)) {
            qy_lock_take(&qy_units.lock);
            qy_dense_split(c, at == c->record.base && next <= end);
            qy_lock_drop(&qy_units.lock);
        }
        at = next;
    }
}

// Not under the lock: it takes a tenth of a millisecond, and for ever where the kernel has to find the page first.
void qy_dense_first(qy_chunk_t *c, void *at) {
    uint8_t untimed = QY_DENSE_UNTIMED;
    if (!atomic_compare_exchange_strong(&c->huge, &untimed, QY_DENSE_ASKED)) return;
    uint64_t begin = qy_os_now_ns();
    __atomic_store_n((uint64_t *)at, 0, __ATOMIC_RELAXED);
    uint64_t now = qy_os_now_ns();
    qy_lock_take(&qy_units.lock);
    qy_dense_took(&dense.policy, now - begin, qy_os_now_coarse_ns());
    qy_lock_drop(&qy_units.lock);
}

void qy_dense_after_fork(void) {
    atomic_store_explicit(&dense.forked_until, qy_os_now_coarse_ns() + QY_DENSE_FORK, memory_order_relaxed);
}

size_t qy_dense_bytes(void) { return atomic_load_explicit(&dense.chunks, memory_order_relaxed) * QY_CHUNK; }
size_t qy_dense_waste(void) { return atomic_load_explicit(&dense.waste, memory_order_relaxed); }
