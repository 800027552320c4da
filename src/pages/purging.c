// SPDX-License-Identifier: MIT
// purging.c: see purging.h.
#include "pages/purging.h"

#include "os/os.h"
#include "rt/opts.h"
#include "rt/heuristics.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define PART 32u  // of all that is there
#define SECOND UINT64_C(1000000000)

qy_purging_budget_t qy_purging_of_growth, qy_purging_of_runs;

// What a program asks for (trim), and what is wanted when the kernel has no more memory, goes whole: no rule is asked.
static const struct {
    size_t at_once;               // so much may go at once, or one part of all; of a budget, the burst
    size_t keeps;                 // so much stays
    qy_purging_budget_t *budget;  // NULL: no more than `at_once`. Else all that is asked, if anything is left
    size_t trust;                 // one byte in so many is paid for when it goes, the others when they are had again
    bool splits;                  // also with huge pages always, where one is one fault, and split by this
} rules[QY_PURGING_EVENTS] = {
    [QY_PURGING_AGED] = {.at_once = 256 * MIB, .splits = true},
    [QY_PURGING_GROWTH] = {.at_once = 256 * KIB, .budget = &qy_purging_of_growth, .trust = 1},
    [QY_PURGING_RUN_OLD] = {.at_once = 2 * MIB, .budget = &qy_purging_of_runs, .trust = 8},
    [QY_PURGING_RUN_FIRST] = {.at_once = 2 * MIB},
    [QY_PURGING_YOUNG] = {.at_once = 256 * MIB, .keeps = 16 * MIB, .splits = true},
    [QY_PURGING_ALONE] = {.at_once = 256 * MIB, .keeps = 32 * MIB, .splits = true},
    [QY_PURGING_ENDING] = {.at_once = 1 * MIB},
};

static struct {
    qy_lock_t lock;
    _Atomic uint32_t epoch;
    _Atomic size_t count, bytes, regretted;
    _Atomic size_t unmapped;       // in the last second, about, and not mapped again
    _Atomic uint64_t unmapped_ns;  // the last of them
} purging;

// ---- budgets --------------------------------------------------------------------------------------------

static uint64_t cost(uint64_t bytes) { return bytes * (SECOND / 1000) / QY_PURGING_RATE * 1000; }

static bool budget_is_left(qy_purging_budget_t *b, uint64_t burst) {
    uint64_t until = atomic_load_explicit(&b->spent_until, memory_order_relaxed), now = qy_os_now_coarse_ns();
    uint64_t saved = cost(qy_min(burst, QY_PURGING_RATE)), since = now > saved ? now - saved : 0;  // a young clock
    if (until < since) atomic_store_explicit(&b->spent_until, until = since, memory_order_relaxed);
    return until < now;
}

static void budget_spend(qy_purging_budget_t *b, uint64_t bytes) {
    atomic_fetch_add_explicit(&b->spent_until, cost(bytes), memory_order_relaxed);
}

// ---- events ---------------------------------------------------------------------------------------------

size_t qy_purging_may(qy_purging_event_t event, size_t asked, size_t all) {
    if (!qy_opts.purge || (!rules[event].splits && qy_os_thp_always())) return 0;
    size_t at_once = qy_max(all / PART, rules[event].at_once);
    if (!rules[event].budget) return qy_min(asked, at_once);
    return budget_is_left(rules[event].budget, at_once) ? asked : 0;
}

size_t qy_purging_keeps(qy_purging_event_t event) { return rules[event].keeps; }

void qy_purging_pay(qy_purging_event_t event, size_t bytes) {
    budget_spend(rules[event].budget, bytes / rules[event].trust);
}

void qy_purging_again(qy_purging_event_t event, size_t bytes) {
    budget_spend(rules[event].budget, bytes - bytes / rules[event].trust);
}

void qy_purging_refused(qy_purging_event_t event) {
    atomic_store_explicit(&rules[event].budget->spent_until, qy_os_now_coarse_ns() + SECOND, memory_order_relaxed);
}

// ---- where pages leave ----------------------------------------------------------------------------------

uint32_t qy_purging_epoch(void) { return atomic_load_explicit(&purging.epoch, memory_order_relaxed); }
uint32_t qy_purging_next_epoch(void) { return atomic_fetch_add_explicit(&purging.epoch, 1, memory_order_relaxed) + 1; }
qy_lock_t *qy_purging_lock(void) { return &purging.lock; }

static void count_bytes(size_t bytes) {
    atomic_fetch_add_explicit(&purging.count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&purging.bytes, bytes, memory_order_relaxed);
}

bool qy_purging_pages(char *base, size_t bytes) {
    QY_NEEDS(&purging.lock);
    if (!qy_os_purge(base, bytes)) return false;
    count_bytes(bytes);
    return true;
}

void qy_purging_unmapped(size_t bytes) {
    count_bytes(bytes);
    uint64_t now = qy_os_now_coarse_ns();
    if (now - atomic_exchange_explicit(&purging.unmapped_ns, now, memory_order_relaxed) >= QY_PURGING_REGRET_NS)
        atomic_store_explicit(&purging.unmapped, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&purging.unmapped, bytes, memory_order_relaxed);
}

void qy_purging_mapped(size_t bytes) {
    size_t gone = atomic_load_explicit(&purging.unmapped, memory_order_relaxed), again;
    do {
        again = qy_min(gone, bytes);
        if (!again) return;
    } while (!atomic_compare_exchange_weak_explicit(
        &purging.unmapped, &gone, gone - again, memory_order_relaxed, memory_order_relaxed));
    qy_purging_regret(again, atomic_load_explicit(&purging.unmapped_ns, memory_order_relaxed));
}

void qy_purging_regret(size_t bytes, uint64_t since_ns) {
    if (qy_os_now_coarse_ns() - since_ns < QY_PURGING_REGRET_NS)
        atomic_fetch_add_explicit(&purging.regretted, bytes, memory_order_relaxed);
}
size_t qy_purging_regretted(void) { return atomic_load_explicit(&purging.regretted, memory_order_relaxed); }

size_t qy_purging_counted(size_t *ret_bytes) {
    *ret_bytes = atomic_load_explicit(&purging.bytes, memory_order_relaxed);
    return atomic_load_explicit(&purging.count, memory_order_relaxed);
}

// ---- how long free memory waits -------------------------------------------------------------------------

#define WATCHED_MIN ((size_t)256 << 10)  // less says nothing
#define WATCHED_TIME 16                  // times the option
#define LONGEST 3u                       // 2 to this power times two epochs

// A race between those who take memory again, or with who gives some back, miscounts a few bytes of one watch.
static struct {
    _Atomic uint32_t longer;         // log2 of how many times two epochs
    _Atomic size_t released, again;  // of this watch
    _Atomic uint64_t since_ns;
    _Atomic uint32_t taken;  // counted, ...
    uint32_t taken_seen;     // [purge lock] ... up to the last epoch
    _Atomic uint32_t quiet;  // epochs in which nothing was taken
} watch;

uint32_t qy_age(void) {
    if (!QY_WITH(age) || atomic_load_explicit(&watch.quiet, memory_order_relaxed) >= QY_AGE_RESTS)
        return QY_AGE_LEAST;
    return QY_AGE_LEAST << atomic_load_explicit(&watch.longer, memory_order_relaxed);
}

void qy_age_taken(void) {
    atomic_store_explicit(
        &watch.taken, atomic_load_explicit(&watch.taken, memory_order_relaxed) + 1, memory_order_relaxed);
}

static void count_quiet(void) {
    uint32_t taken = atomic_load_explicit(&watch.taken, memory_order_relaxed),
             quiet = atomic_load_explicit(&watch.quiet, memory_order_relaxed);
    atomic_store_explicit(
        &watch.quiet, taken == watch.taken_seen ? (uint32_t)qy_min(quiet + 1, QY_AGE_RESTS) : 0, memory_order_relaxed);
    watch.taken_seen = taken;
}

// Quickly up, slowly down.
static void wait_longer(bool longer) {
    uint32_t now = atomic_load_explicit(&watch.longer, memory_order_relaxed);
    if (longer) now = now ? LONGEST : 2;
    else if (now) now--;
    atomic_store_explicit(&watch.longer, now, memory_order_relaxed);
}

static bool is_soon(void) {
    uint64_t passed = qy_os_now_coarse_ns() - atomic_load_explicit(&watch.since_ns, memory_order_relaxed);
    return passed < qy_opts.purge_delay * 1000000 * WATCHED_TIME;
}

void qy_age_released(size_t bytes) {
    count_quiet();
    size_t released = atomic_load_explicit(&watch.released, memory_order_relaxed);
    if (released && !is_soon()) {
        if (atomic_exchange_explicit(&watch.released, 0, memory_order_relaxed) >= WATCHED_MIN) wait_longer(false);
        released = 0;
    }
    if (!bytes) return;
    if (!released) {
        atomic_store_explicit(&watch.since_ns, qy_os_now_coarse_ns(), memory_order_relaxed);
        atomic_store_explicit(&watch.again, 0, memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&watch.released, bytes, memory_order_relaxed);
}

void qy_age_again(size_t bytes) {
    size_t released = atomic_load_explicit(&watch.released, memory_order_relaxed);
    if (released < WATCHED_MIN) return;
    if (atomic_fetch_add_explicit(&watch.again, bytes, memory_order_relaxed) + bytes < released / 2) return;
    if (atomic_exchange_explicit(&watch.released, 0, memory_order_relaxed)) wait_longer(is_soon());
}
