// SPDX-License-Identifier: MIT
// age.c: see age.h.
#include "pages/age.h"

#include "base/num.h"
#include "os/os.h"
#include "rt/heuristics.h"
#include "rt/opts.h"

#include <stdatomic.h>
#include <stdbool.h>

#define WATCHED_MIN ((size_t)256 << 10)  // less says nothing
#define WATCHED_TIME 16                  // times the option
#define LONGEST 3u                       // 2 to this power times two epochs

// A race between those who take memory again, or with who gives some back, miscounts a few bytes of one watch.
static struct {
    _Atomic uint32_t longer;      // log2 of how many times two epochs
    _Atomic size_t given, again;  // of this watch
    _Atomic uint64_t since_ns;
    _Atomic uint32_t taken;  // counted, ...
    uint32_t taken_seen;     // [purge lock] ... up to the last epoch
    _Atomic uint32_t quiet;  // epochs in which nothing was taken
} watch;

uint32_t qy_age(void) {
    if (!QY_WITH(age) || (QY_WITH(rest) && atomic_load_explicit(&watch.quiet, memory_order_relaxed) >= QY_AGE_RESTS))
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

void qy_age_given(size_t bytes) {
    count_quiet();
    size_t given = atomic_load_explicit(&watch.given, memory_order_relaxed);
    if (given && !is_soon()) {
        if (atomic_exchange_explicit(&watch.given, 0, memory_order_relaxed) >= WATCHED_MIN) wait_longer(false);
        given = 0;
    }
    if (!bytes) return;
    if (!given) {
        atomic_store_explicit(&watch.since_ns, qy_os_now_coarse_ns(), memory_order_relaxed);
        atomic_store_explicit(&watch.again, 0, memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&watch.given, bytes, memory_order_relaxed);
}

void qy_age_again(size_t bytes) {
    size_t given = atomic_load_explicit(&watch.given, memory_order_relaxed);
    if (given < WATCHED_MIN) return;
    if (atomic_fetch_add_explicit(&watch.again, bytes, memory_order_relaxed) + bytes < given / 2) return;
    if (atomic_exchange_explicit(&watch.given, 0, memory_order_relaxed)) wait_longer(is_soon());
}
