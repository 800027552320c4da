// SPDX-License-Identifier: MIT
// usage.c: see usage.h.
#include "trace/usage.h"

#include "os/process.h"
#include "stacks/own.h"
#include "trace/recording.h"
#include "trace/sample.h"

#define PERIOD_NS 10000000  // the least time between two looks
#define SHARE 50            // of the time, one part goes to looking
// What is the recorder's, with what is mapped of the trace: its end block, and half a block for each thread, as they
// are filled at different times.
static void own(const qy_writer_t *w, uint64_t *ret_anonymous, uint64_t *ret_file) {
    *ret_anonymous = 0;
    *ret_file = qy_record.file.grain + (uint64_t)qy_record.living * (w->block ? w->block->span / 2 : 0);
    qy_own_resident(ret_anonymous, ret_file);
}

static void write_usage(qy_writer_t *w) {
    qy_os_usage_t u;
    uint64_t own_anonymous, own_file;
    if (!qy_os_usage(&u)) return;
    own(w, &own_anonymous, &own_file);
    uint64_t numbers[QY_USAGE_NUMBERS] = {u.anonymous, u.file, u.shared, u.peak, own_anonymous, own_file, u.cpu_ns,
        atomic_load_explicit(&qy_record.traits, memory_order_relaxed) |
            (u.no_huge_pages ? QY_TRAIT_NO_HUGE_PAGES : 0)};
    qy_write_numbers(w, QY_OP_MEMORY, 0, qy_os_ticks(), 2, u.anonymous, u.file + u.shared);
    qy_write_extension(w, QY_EXTENSION_USAGE, numbers, QY_USAGE_NUMBERS);
}

void qy_usage_tell(qy_writer_t *w) {
    uint64_t now = qy_os_now_ns(), due = atomic_load_explicit(&qy_record.memory_due, memory_order_relaxed);
    if (now < due || !atomic_compare_exchange_strong(&qy_record.memory_due, &due, now + PERIOD_NS)) return;
    write_usage(w);
    uint64_t rest = (qy_os_now_ns() - now) * SHARE;
    if (rest > PERIOD_NS) atomic_store_explicit(&qy_record.memory_due, now + rest, memory_order_relaxed);
}

void qy_usage_tell_end(qy_writer_t *w) {
    write_usage(w);
    if (!qy_large.bits) return;
    for (size_t b = 0; b < (size_t)1 << qy_large.bits; b++) {
        for (unsigned i = 0; i < QY_ADDRSET_WAYS; i++) {
            uint64_t address = atomic_load_explicit(&qy_large.buckets[b].slot[i].addr, memory_order_acquire);
            uint64_t size = atomic_load_explicit(&qy_large.buckets[b].slot[i].value, memory_order_relaxed);
            if (address < QY_LARGE_BYTES) continue;  // empty, or being filled
            uint64_t numbers[] = {address, qy_os_resident((const void *)(uintptr_t)address, size)};
            qy_write_extension(w, QY_EXTENSION_RESIDENT, numbers, 2);
        }
    }
}

// A writer knows the last address of each kind of size in its block. The marks of threads without one know none.
bool qy_usage_is_early(void) {
    const qy_writer_t *w = qy_record_mine;
    for (unsigned kind = 0; kind < QY_KINDS_ALLOC; kind++) {
        if (w->previous[kind]) return true;
    }
    return false;
}
