// SPDX-License-Identifier: MIT
// purging.c: see purging.h.
#include "pages/purging.h"

#include "os/os.h"
#include "rt/opts.h"

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
    _Atomic size_t count, bytes;
} purging;

// ---- budgets --------------------------------------------------------------------------------------------

static uint64_t cost(uint64_t bytes) { return bytes * (SECOND / 1000) / QY_PURGING_RATE * 1000; }

static bool budget_is_left(qy_purging_budget_t *b, uint64_t burst) {
    uint64_t until = atomic_load_explicit(&b->spent_until, memory_order_relaxed), now = qy_os_now_coarse_ns();
    uint64_t since = now - cost(qy_min(burst, QY_PURGING_RATE));
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

bool qy_purging_pages(char *base, size_t bytes) {
    QY_NEEDS(&purging.lock);
    if (!qy_os_purge(base, bytes)) return false;
    qy_purging_count(bytes);
    return true;
}

void qy_purging_count(size_t bytes) {
    atomic_fetch_add_explicit(&purging.count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&purging.bytes, bytes, memory_order_relaxed);
}
size_t qy_purging_counted(size_t *ret_bytes) {
    *ret_bytes = atomic_load_explicit(&purging.bytes, memory_order_relaxed);
    return atomic_load_explicit(&purging.count, memory_order_relaxed);
}
