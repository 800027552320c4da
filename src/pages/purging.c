// SPDX-License-Identifier: MIT
// purging.c: see purging.h.
#include "pages/purging.h"

#include "os/os.h"
#include "rt/opts.h"

static struct {
    qy_lock_t lock;
    _Atomic uint32_t epoch;
    _Atomic size_t count, bytes;
} purging;

uint32_t qy_purging_epoch(void) { return atomic_load_explicit(&purging.epoch, memory_order_relaxed); }
uint32_t qy_purging_next_epoch(void) { return atomic_fetch_add_explicit(&purging.epoch, 1, memory_order_relaxed) + 1; }
bool qy_purging_runs(void) { return qy_opts.purge; }
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
