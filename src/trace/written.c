// SPDX-License-Identifier: MIT
// written.c: see written.h.
#include "trace/written.h"

#include "base/num.h"
#include "os/os.h"
#include "os/process.h"
#include "os/ticks.h"

#define STEP ((size_t)256)  // one word of the pattern for so many bytes
#define PAGES_MOST (QY_LARGE_BYTES / QY_WRITTEN_BYTES + 1)
#define SHARE 100u        // of the time, one part goes to watching
#define AT_ONCE 4000u     // of a second, one part may go to it at the beginning
#define COST_MOST 20000u  // of a second, one part is the most that a block is taken to cost: the thread may have slept
#define FIRST 32u         // so many blocks are watched whatever they cost
#define LIVE_MOST 512u    // more would make free look into the set too often
#define MEAN_LEAST (UINT64_C(16) << 10)
#define MEAN_MOST (UINT64_C(1) << 32)

// A value of qy_large: the flag, then these.
#define SIZE_BITS 18u
#define FROM_SHIFT SIZE_BITS
#define WRITTEN_SHIFT (2 * SIZE_BITS)
#define FIELD ((UINT64_C(1) << SIZE_BITS) - 1)
#define ZEROED (UINT64_C(1) << 62)
_Static_assert(QY_LARGE_BYTES <= FIELD, "a size has a field");

static struct watching {
    uint64_t secret, began;
    _Atomic uint64_t spent, blocks;
    _Atomic uint64_t mean;  // bytes from one watched block to the next; 0: all are
    _Atomic uint32_t live;
} watching;

void qy_written_start(void) {
    watching.secret = qy_os_random();
    qy_written_restart();
}

void qy_written_restart(void) {
    watching.began = qy_os_ticks();
    atomic_store_explicit(&watching.spent, 0, memory_order_relaxed);
    atomic_store_explicit(&watching.blocks, 0, memory_order_relaxed);
    atomic_store_explicit(&watching.mean, 0, memory_order_relaxed);
    atomic_store_explicit(&watching.live, 0, memory_order_relaxed);
}

static uint64_t pack(qy_written_t b) {
    return QY_WRITTEN_FLAG | (b.zeroed ? ZEROED : 0) | (uint64_t)b.written << WRITTEN_SHIFT |
           (uint64_t)b.from << FROM_SHIFT | b.size;
}
static qy_written_t unpack(uint64_t value) {
    return (qy_written_t){.size = value & FIELD,
        .from = value >> FROM_SHIFT & FIELD,
        .written = value >> WRITTEN_SHIFT & FIELD,
        .zeroed = (value & ZEROED) != 0};
}
uint64_t qy_written_size(uint64_t value) { return qy_written_is(value) ? value & FIELD : value; }

// ---- what it costs ------------------------------------------------------------------------------------------

static void written_charge(uint64_t since) {
    uint64_t ticks = qy_min(qy_os_ticks() - since, qy_ticks.per_second / COST_MOST);
    atomic_fetch_add_explicit(&watching.spent, ticks, memory_order_relaxed);
}

// How many bytes the thread may take until a block is watched again.
static void draw_next(qy_writer_t *w) {
    uint64_t spent = atomic_load_explicit(&watching.spent, memory_order_relaxed),
             mean = atomic_load_explicit(&watching.mean, memory_order_relaxed),
             may = (qy_os_ticks() - watching.began) / SHARE + qy_ticks.per_second / AT_ONCE;
    bool full = atomic_load_explicit(&watching.live, memory_order_relaxed) >= LIVE_MOST;
    bool first = atomic_fetch_add_explicit(&watching.blocks, 1, memory_order_relaxed) < FIRST;
    if (full || (spent > may && !first)) mean = mean ? qy_min(2 * mean, MEAN_MOST) : MEAN_LEAST;
    else if (spent < may / 2) mean = mean > MEAN_LEAST ? mean / 2 : 0;
    atomic_store_explicit(&watching.mean, mean, memory_order_relaxed);
    w->unwatched = mean ? qy_sample_next(&w->chance, mean) : 0;
}

// ---- pages and places in them -----------------------------------------------------------------------------------

typedef struct pages {
    uintptr_t first;
    size_t page, count;
    unsigned char present[PAGES_MOST];
} pages_t;

static bool written_ask(pages_t *pages, uintptr_t from, uintptr_t end) {
    pages->page = qy_os_page_size();
    pages->first = qy_round_down(from, pages->page);
    pages->count = (end - pages->first + pages->page - 1) / pages->page;
    return qy_os_present(pages->first, pages->count, pages->present);
}

static uint64_t pattern(uintptr_t at) { return (at ^ watching.secret) * UINT64_C(0x9E3779B97F4A7C15) | 1; }

// The first whole word of a part, then one at each multiple of STEP.
static uintptr_t place_first(uintptr_t from) { return qy_round_up(from, sizeof(uint64_t)); }
static uintptr_t place_next(uintptr_t at) { return qy_round_down(at, STEP) + STEP; }

static void put_pattern(uintptr_t from, uintptr_t end) {
    for (uintptr_t at = place_first(from); at + sizeof(uint64_t) <= end; at = place_next(at))
        *(uint64_t *)at = pattern(at);  // NOLINT(performance-no-int-to-ptr)
}

// Bytes of a part of a page that were written, if any: *ret_extent up to the last place of which that is seen.
QY_NOINLINE __attribute__((no_sanitize("address", "thread"))) static bool was_written(
    uintptr_t from, uintptr_t end, bool zeroed, size_t *ret_extent) {
    bool any = false, same = false;
    uintptr_t last = 0, last_nonzero = 0;
    // In zeros each word can be looked at.
    for (uintptr_t at = place_first(from); at + sizeof(uint64_t) <= end;
         at = zeroed ? at + sizeof(uint64_t) : place_next(at)) {
        uint64_t word = *(volatile uint64_t *)at;  // NOLINT(performance-no-int-to-ptr)
        if (word) last_nonzero = at;
        if (!zeroed && word == pattern(at)) {
            same = true;
        } else if (!zeroed || word) {
            any = true;
            last = at;
        }
    }
    // A page without any of the pattern may have been fresh, and zero behind what was written.
    if (!same && last_nonzero) last = last_nonzero;
    *ret_extent = !same && !last_nonzero ? end - from : qy_min(place_next(last), end) - from;
    return any;
}

// ---- blocks -----------------------------------------------------------------------------------------------------

void qy_written_watch(qy_writer_t *w, void *p, qy_written_t block) {
    uint64_t begin = qy_os_ticks();
    uintptr_t from = (uintptr_t)p + block.from, end = (uintptr_t)p + block.size;
    pages_t pages;
    bool known = true;
    if (!block.zeroed && from < end) {
        known = written_ask(&pages, from, end);
        for (size_t i = 0; known && i < pages.count; i++) {
            uintptr_t page = pages.first + i * pages.page;
            if (pages.present[i] & 1) put_pattern(qy_max(page, from), qy_min(page + pages.page, end));
        }
    }
    if (known && atomic_load_explicit(&watching.live, memory_order_relaxed) < LIVE_MOST) qy_written_put(p, pack(block));
    written_charge(begin);
    draw_next(w);
}

size_t qy_written_bytes(const void *p, uint64_t value) {
    uint64_t begin = qy_os_ticks();
    qy_written_t block = unpack(value);
    uintptr_t from = (uintptr_t)p + block.from, end = (uintptr_t)p + block.size;
    size_t sum = 0, last = 0;  // whole pages, and the one that comes last as far as it was written
    pages_t pages;
    if (from < end && written_ask(&pages, from, end)) {
        for (size_t i = 0; i < pages.count; i++) {
            uintptr_t page = pages.first + i * pages.page;
            uintptr_t lo = qy_max(page, from), hi = qy_min(page + pages.page, end);
            size_t extent;
            // A program may have made a guard of a page.
            if (!(pages.present[i] & 1) || !qy_os_readable((const void *)lo)) continue;
            if (!was_written(lo, hi, block.zeroed, &extent)) continue;
            sum += hi - lo;
            last = hi - lo - extent;
        }
    }
    written_charge(begin);
    return block.written + sum - last;
}

bool qy_written_take(const void *p, uint64_t *ret_value) {
    if (!qy_addrset_maybe(&qy_large, (uintptr_t)p) || !qy_addrset_take(&qy_large, (uintptr_t)p, ret_value))
        return false;
    if (qy_written_is(*ret_value)) atomic_fetch_sub_explicit(&watching.live, 1, memory_order_relaxed);
    return true;
}

void qy_written_put(const void *p, uint64_t value) {
    if (qy_addrset_add(&qy_large, (uintptr_t)p, value) && qy_written_is(value))
        atomic_fetch_add_explicit(&watching.live, 1, memory_order_relaxed);
}
