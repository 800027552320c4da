// SPDX-License-Identifier: MIT
// clear.c: see clear.h.
//
// A page of a fresh mapping costs 1.3 to 1.9 us when it is touched and unmapped, and nothing if it is not. A page of a
// run costs 0.05 to 0.2 us to clear, touched later or not. So the run is better where the program touches an eighth of
// the object, and about as good from a twentieth on. What it will touch nobody knows. What it touched of the last one
// of that size can be seen at its end, in some of the pages. Nothing else is kept.
//
// To clear does not make memory of what was none. Units that nobody had are left alone. In the others, what reads as
// zero is not written to: an untouched page becomes the kernel's page of zeros, once, and that is no memory.
#include "heap/clear.h"

#include "os/os.h"
#include "pages/chunk.h"
#include "pages/map.h"
#include "rt/heuristics.h"

#define PART ((size_t)4096)  // the smallest page
#define PROBES 8u            // pages looked at; none of them is touched if it is less than an eighth, mostly
#define SKIP_MOST 255u       // mappings in a row that nobody looks at: as many as were untouched before, about
#define DOUBLINGS 7u         // from QY_RUN_MAX up to QY_LONG_MAX
_Static_assert(QY_RUN_MAX << DOUBLINGS == QY_LONG_MAX, "a state for each size");

// Of the sizes up to 2^k bytes and a quarter, a half, three quarters and all of that more. A race miscounts one object.
static struct clear_state {
    _Atomic bool touched;        // the last one that was looked at
    _Atomic uint8_t skip, left;  // so many are not looked at when one was untouched; of those, so many to go
} states[DOUBLINGS][4];

static struct clear_state *clear_state_of(size_t n) {
    unsigned k = 63u - (unsigned)__builtin_clzll((uint64_t)(n - 1) / QY_RUN_MAX);
    return &states[k][(n - 1) / (QY_RUN_MAX / 4) >> k & 3];
}

bool qy_clear_pays(size_t n) {
    return QY_WITH(touched) && n > QY_RUN_MAX && n <= QY_LONG_MAX &&
           atomic_load_explicit(&clear_state_of(n)->touched, memory_order_relaxed);
}

// No sanitizer looks at these loads: the bytes are the program's.
typedef uint64_t words_t __attribute__((vector_size(32), may_alias));
QY_NOINLINE __attribute__((no_sanitize("address", "thread"))) static bool part_is_zero(const char *p) {
    for (const char *end = p + PART; p < end; p += 8 * sizeof(words_t)) {
        const words_t *w = (const words_t *)p;
        words_t any = (w[0] | w[1] | w[2] | w[3]) | (w[4] | w[5] | w[6] | w[7]);
        if (any[0] | any[1] | any[2] | any[3]) return false;
    }
    return true;
}

// Some pages of it, spread evenly, whatever part of it the program uses. It may have taken the access away.
static bool is_touched(const char *p, size_t n) {
    size_t parts = n / PART;
    uint32_t at = 0;
    for (unsigned i = 0; i < PROBES; i++) {
        at += UINT32_C(0x9E3779B1);
        const char *part = p + ((parts * at) >> 32) * PART;
        if (qy_os_can_be_read(part) && !part_is_zero(part)) return true;
    }
    return false;
}

QY_COLD void qy_clear_learn(const char *p, size_t n, bool fresh) {
    if (n <= QY_RUN_MAX || n > QY_LONG_MAX) return;
    struct clear_state *s = clear_state_of(n);
    uint8_t left = atomic_load_explicit(&s->left, memory_order_relaxed);
    if (fresh && left) {
        atomic_store_explicit(&s->left, left - 1, memory_order_relaxed);
        return;
    }
    bool touched = is_touched(p, n);
    uint8_t skip = atomic_load_explicit(&s->skip, memory_order_relaxed);
    skip = touched ? 0 : (uint8_t)qy_min(2 * skip + 1, SKIP_MOST);
    atomic_store_explicit(&s->touched, touched, memory_order_relaxed);
    atomic_store_explicit(&s->skip, skip, memory_order_relaxed);
    atomic_store_explicit(&s->left, skip, memory_order_relaxed);
}

static void clear_parts(char *p, size_t n) {
    for (; n >= PART; p += PART, n -= PART)
        if (!part_is_zero(p)) memset(p, 0, PART);
    memset(p, 0, n);
}

// The units of the run's part in chunk c that may hold old bytes.
static void clear_units(char *p, size_t n, qy_bits_t old) {
    while (old) {
        unsigned first = qy_bits_lowest(old);
        qy_bits_t rest = ~(old >> first);
        unsigned count = rest ? qy_bits_lowest(rest) : QY_CHUNK_UNITS;
        size_t from = (size_t)first * QY_UNIT, to = qy_min(from + (size_t)count * QY_UNIT, n);
        if (from >= to) return;
        clear_parts(p + from, to - from);
        old &= ~qy_bits_run(first, qy_min(count, QY_CHUNK_UNITS - first));
    }
}

QY_COLD void qy_clear_run(void *p, size_t n) {
    for (char *at = p, *end = at + n; at < end;) {
        unsigned first = (unsigned)(((uintptr_t)at & (QY_CHUNK - 1)) >> QY_UNIT_SHIFT);
        size_t bytes = qy_min((size_t)(QY_CHUNK_UNITS - first) << QY_UNIT_SHIFT, (size_t)(end - at));
        clear_units(at, bytes, qy_units_old(qy_map_chunk(at)) >> first);
        at += bytes;
    }
}
