// SPDX-License-Identifier: MIT
// usage.c: see usage.h.
#include "trace/usage.h"

#include "base/num.h"
#include "os/process.h"
#include "os/ticks.h"
#include "stacks/own.h"
#include "trace/recording.h"
#include "trace/written.h"

#define PERIOD_NS UINT64_C(10000000)  // the least time between two looks
#define SHARE 50                      // of the time, one part goes to looking
#define PACE_MOST 5u                  // and as little as a 32nd of that

// What is the recorder's, with what is mapped of the trace: its end block, and half a block for each thread, as they
// are filled at different times.
static void own(const qy_writer_t *w, uint64_t *ret_anonymous, uint64_t *ret_file) {
    *ret_anonymous = 0;
    *ret_file = qy_record.file.grain + (uint64_t)qy_record.living * (w->block ? w->block->span / 2 : 0);
    qy_own_resident(ret_anonymous, ret_file);
}

// Returns the processor time, 0 if that is not known.
static uint64_t write_usage(qy_writer_t *w) {
    qy_os_usage_t u;
    uint64_t own_anonymous, own_file;
    if (!qy_os_usage(&u)) return 0;
    own(w, &own_anonymous, &own_file);
    uint64_t numbers[QY_USAGE_NUMBERS] = {u.anonymous, u.file, u.shared, u.peak, own_anonymous, own_file, u.cpu_ns,
        atomic_load_explicit(&qy_record.traits, memory_order_relaxed) |
            (u.no_huge_pages ? QY_TRAIT_NO_HUGE_PAGES : 0)};
    qy_write_numbers(w, QY_OP_MEMORY, 0, qy_os_ticks(), 2, u.anonymous, u.file + u.shared);
    qy_write_extension(w, QY_EXTENSION_USAGE, numbers, QY_USAGE_NUMBERS);
    return u.cpu_ns;
}

// A process that waits, or whose processors are shared with others, does little between two looks. It is looked at less
// often then, so that looking takes a small part of its own time, too.
static uint64_t slowed(uint64_t rest, uint64_t cpu_ns) {
    static _Atomic uint64_t last;
    static _Atomic uint32_t pace;
    uint64_t used = cpu_ns - atomic_exchange_explicit(&last, cpu_ns, memory_order_relaxed);
    uint32_t shift = atomic_load_explicit(&pace, memory_order_relaxed);
    if (used < PERIOD_NS / 2 && shift < PACE_MOST) shift++;
    else if (used > PERIOD_NS && shift) shift--;
    atomic_store_explicit(&pace, shift, memory_order_relaxed);
    return rest << shift;
}

void qy_usage_tell(qy_writer_t *w) {
    uint64_t now = qy_os_now_ns(), due = atomic_load_explicit(&qy_record.memory_due, memory_order_relaxed);
    if (now < due || !atomic_compare_exchange_strong(&qy_record.memory_due, &due, now + PERIOD_NS)) return;
    uint64_t cpu_ns = write_usage(w);
    uint64_t rest = slowed(qy_max((qy_os_now_ns() - now) * SHARE, PERIOD_NS), cpu_ns);
    if (rest > PERIOD_NS) atomic_store_explicit(&qy_record.memory_due, now + rest, memory_order_relaxed);
    // Half of it: no clock may run too late.
    uint64_t ticks = qy_os_ticks() + rest / 2 * (qy_ticks.per_second / 1000) / 1000000;
    atomic_store_explicit(&qy_record.memory_ticks, ticks, memory_order_relaxed);
}

void qy_usage_tell_end(qy_writer_t *w) {
    write_usage(w);
    if (!qy_large.bits) return;
    for (size_t b = 0; b < (size_t)1 << qy_large.bits; b++) {
        for (unsigned i = 0; i < QY_ADDRSET_WAYS; i++) {
            uint64_t address = atomic_load_explicit(&qy_large.buckets[b].slot[i].addr, memory_order_acquire);
            uint64_t value = atomic_load_explicit(&qy_large.buckets[b].slot[i].value, memory_order_relaxed);
            if (address < QY_LARGE_BYTES) continue;  // empty, or being filled
            const void *p = (const void *)(uintptr_t)address;
            bool watched = qy_written_is(value);
            // Another thread may give the memory back while it is read.
            if (watched && atomic_load_explicit(&qy_record.living, memory_order_relaxed) > 1) continue;
            uint64_t numbers[] = {address, watched ? qy_written_bytes(p, value) : qy_os_resident(p, value)};
            qy_write_extension(w, watched ? QY_EXTENSION_WRITTEN : QY_EXTENSION_RESIDENT, numbers, 2);
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
