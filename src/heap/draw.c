// SPDX-License-Identifier: MIT
// draw.c: see draw.h. Rare: a few calls in a thousand of the slow paths come here, and only while the sampler is on.
#include "heap/draw.h"

#include "heap/depot.h"
#include "heap/heaps.h"
#include "heap/link.h"
#include "heap/sizeclass.h"
#include "os/os.h"
#include "pages/meta.h"

// ---- where points lie -----------------------------------------------------------------------------------

#define GOLDEN UINT64_C(0x9E3779B97F4A7C15)

static uint64_t uniform(uint64_t *state) {
    uint64_t x = *state += GOLDEN;
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

// Where a thread's numbers begin. Not by a system call: a filter of the program may kill for it by now.
static uint64_t random_begin(void) {
    uint64_t state = qy_link.fold ^ qy_os_thread_token() ^ qy_os_now_ns();
    return uniform(&state);
}

// The distance from one point to the next in bytes: exponential, with mean 2^rate, rounded down. Von Neumann's way:
// uniform numbers are drawn as long as they fall. If their number is odd, the first one is the fraction; if not,
// begin again with one more. It is exact, and needs no logarithm.
#define TRIES 40u  // after so many it is e^-40 that there are more
static uint64_t next_point(uint64_t *state, unsigned rate) {
    for (uint64_t whole = 0;; whole++) {
        uint64_t first = uniform(state), last = first, next;
        bool odd = true;
        for (; (next = uniform(state)) < last; last = next) odd = !odd;
        if (odd || whole == TRIES) return (whole << rate) + (rate ? first >> (64 - rate) : 0);
    }
}

QY_INLINE unsigned rate_of(const qy_thread_t *t) { return qy_draw_rate(t->drawn); }

// As many blocks of class c without a point come before one with a point.
QY_NOINLINE static uint64_t draw_skip(qy_thread_t *t, unsigned c) {
    return next_point(&t->draw->random, rate_of(t)) / qy_class_size[c];
}

// Whatever block it is, the first point in it lies where it would in any other: the distance modulo the block's size,
// since a distance that is known to be more than something is distributed beyond that as it was from the start.
bool qy_draw_accepts(qy_thread_t *t, unsigned c, unsigned rate, size_t n) {
    return next_point(&t->draw->random, rate) % qy_class_size[c] < n;
}

bool qy_draw_at_once(unsigned rate, size_t n) {
    static _Atomic uint64_t calls;
    uint64_t state = atomic_load_explicit(&calls, memory_order_relaxed);
    if (!state) {
        uint64_t seed = random_begin() | 1;
        atomic_compare_exchange_strong_explicit(&calls, &state, seed, memory_order_relaxed, memory_order_relaxed);
    }
    // No two calls use the same numbers soon.
    state = atomic_fetch_add_explicit(&calls, GOLDEN << 20, memory_order_relaxed);
    return next_point(&state, rate) < n;
}

// e^-x for x >= 0, to 12 digits: of a 64th of it by its series, which is squared then.
static double exp_minus(double x) {
    double part = -x / 64, term = 1, sum = 1;
    if (x > 60) return 0;
    for (int i = 1; i < 14; i++) sum += term *= part / i;
    for (int i = 0; i < 6; i++) sum *= sum;
    return sum;
}

uint64_t qy_draw_stands_for(unsigned rate, size_t n) {
    double mean = (double)(UINT64_C(1) << rate), x = (double)n / mean;
    // Where 1 - e^-x would lose digits, the series of x / (1 - e^-x).
    double factor = x < 0.1 ? 1 + x / 2 + x * x / 12 - x * x * x * x / 720 : x / (1 - exp_minus(x));
    return (uint64_t)(mean * factor + 0.5);
}

// ---- room -----------------------------------------------------------------------------------------------

// The next free of class c that must be seen is after `room` others, or after `skip`.
QY_INLINE void set_both(qy_thread_t *t, unsigned c, unsigned room, uint64_t skip) {
    unsigned seen = (unsigned)qy_min(room, skip);
    qy_draw_set_room_of(&t->cache, c, seen);
    t->draw->held[c] = (uint8_t)(room - seen);
    t->draw->skip[c] = skip - seen;
}

QY_INLINE uint64_t skip_now(qy_thread_t *t, unsigned c) {
    return t->draw->skip[c] == QY_DRAW_NONE ? draw_skip(t, c) : t->draw->skip[c] + qy_draw_room_of(&t->cache, c);
}

// A generation may have begun since it was switched off (qy_free_full), which then knew nothing of what was held.
unsigned qy_draw_room_on(const qy_thread_t *t, unsigned c) {
    return (unsigned)qy_min(qy_draw_room_of(&t->cache, c) + t->draw->held[c], qy_class_limit[c]);
}

void qy_draw_set_room_on(qy_thread_t *t, unsigned c, unsigned room) { set_both(t, c, room, skip_now(t, c)); }

bool qy_draw_push(qy_thread_t *t, unsigned c, bool *ret_full) {
    if (QY_UNLIKELY(t->drawn != qy_draw_control())) qy_draw_look(t);
    unsigned room = qy_draw_room(t, c), left = room ? room - 1 : qy_class_limit[c];
    *ret_full = room == 0;
    if (QY_UNLIKELY(!qy_draw_is_on(t))) {
        qy_draw_set_room_of(&t->cache, c, left);
        return false;
    }
    uint64_t skip = skip_now(t, c);
    set_both(t, c, left, QY_LIKELY(skip) ? skip - 1 : draw_skip(t, c));
    return !skip;
}

void qy_draw_choose(const qy_thread_t *t, qy_block_t *b) { qy_link_choose(b, true, rate_of(t)); }

// ---- lists ----------------------------------------------------------------------------------------------

// Each block of the list is chosen, or is not, whatever it was.
static void draw_all(qy_thread_t *t, unsigned c, qy_block_t *list, uint64_t *skip) {
    for (qy_block_t *b = list; b; b = qy_link_next(b)) {
        unsigned was;
        bool chosen = *skip == 0;
        if (chosen || qy_link_is_chosen(b, &was)) qy_link_choose(b, chosen, rate_of(t));
        *skip = chosen ? draw_skip(t, c) : *skip - 1;
    }
}

void qy_draw_list(qy_thread_t *t, unsigned c, qy_block_t *list, uint32_t count) {
    if (QY_LIKELY(t->draw->skip[c] != QY_DRAW_NONE && t->draw->skip[c] >= count)) {
        t->draw->skip[c] -= count;  // none is chosen, and what room counts is as it was
        return;
    }
    unsigned room = qy_draw_room(t, c);
    uint64_t skip = skip_now(t, c);
    // The list is walked as far as the last block that is chosen.
    for (qy_block_t *b = list; count > skip; skip = draw_skip(t, c)) {
        for (uint64_t i = 0; i < skip; i++) b = qy_link_next(b);
        qy_link_choose(b, true, rate_of(t));
        count -= (uint32_t)skip + 1;
        b = qy_link_next(b);
    }
    set_both(t, c, room, skip - count);
}

void qy_draw_again(qy_thread_t *t, unsigned c, qy_block_t *b) {
    qy_link_choose(b, false, 0);
    qy_draw_list(t, c, b, 1);
}

// ---- on and off -----------------------------------------------------------------------------------------

static void rooms_whole(qy_thread_t *t) {
    for (unsigned c = 1; c < QY_CLASS_COUNT; c++) qy_draw_set_room_of(&t->cache, c, qy_draw_room(t, c));
}

// What is on the thread's lists was put there while nobody drew for it.
static void draw_lists(qy_thread_t *t) {
    qy_heap_lock(t->heap);
    qy_depot_home(t->heap);
    qy_heap_unlock(t->heap);
    for (unsigned c = 1; c < QY_CLASS_COUNT; c++) {
        if (!qy_cache_list(&t->cache, c) && !t->prev[c]) continue;
        uint64_t skip = skip_now(t, c);
        unsigned room = qy_draw_room(t, c);
        draw_all(t, c, qy_cache_list(&t->cache, c), &skip);
        draw_all(t, c, t->prev[c], &skip);
        set_both(t, c, room, skip);
    }
}

static void begin(qy_thread_t *t, uint64_t control) {
    if (!t->draw && !(t->draw = qy_meta_alloc(sizeof *t->draw))) return;
    uint64_t was = t->drawn;
    if (qy_draw_is_on(t)) rooms_whole(t);
    if (!t->draw->random) t->draw->random = random_begin();
    t->drawn = control;
    for (unsigned c = 1; c < QY_CLASS_COUNT; c++) {
        t->draw->skip[c] = QY_DRAW_NONE;
        t->draw->held[c] = 0;
        if (c != QY_CLASS_TINY) qy_draw_set_room(t, c, qy_draw_room_of(&t->cache, c));
    }
    t->cache.tiny_left = 0;
    // If it was on, and another rate is wanted, each block of the lists has had its draw: at the rate that its mark
    // says.
    if ((was ^ control) & ~(QY_DRAW_ON - 1)) draw_lists(t);
}

static _Atomic uint64_t control_usual;

uint64_t qy_draw_usual(void) { return atomic_load_explicit(&control_usual, memory_order_relaxed); }

void qy_draw_set_usual(uint64_t word) {
    uint64_t before = atomic_exchange_explicit(&control_usual, word, memory_order_relaxed);
    __atomic_compare_exchange_n(
        &qy_stats_sampler.control, &before, word, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

// A reader that has gone left it off, where the process wants it on.
static uint64_t control_now(void) {
    uint64_t control = qy_draw_control(), word = qy_draw_usual();
    if (QY_LIKELY((control & QY_DRAW_ON) || !word)) return control;
    __atomic_compare_exchange_n(
        &qy_stats_sampler.control, &control, word, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return qy_draw_control();
}

QY_COLD void qy_draw_look(qy_thread_t *t) {
    uint64_t control = control_now();
    if (control == t->drawn) return;
    if (control & QY_DRAW_ON) {
        begin(t, control);
        return;
    }
    if (qy_draw_is_on(t)) rooms_whole(t);
    t->drawn = control;
}

static void tiny_skips(qy_thread_t *t, uint64_t skip) {
    t->cache.tiny_left = (uint32_t)qy_min(skip, QY_DRAW_TINY_MOST);
    t->draw->skip[QY_CLASS_TINY] = skip - t->cache.tiny_left;
}

QY_COLD bool qy_draw_tiny(qy_thread_t *t, size_t n) {
    qy_assert(t->cache.tiny_left == 0);
    qy_draw_look(t);
    t->cache.tiny_left = QY_DRAW_TINY_MOST;
    if (!qy_draw_is_on(t)) return false;
    uint64_t skip = t->draw->skip[QY_CLASS_TINY];
    if (skip == QY_DRAW_NONE) skip = draw_skip(t, QY_CLASS_TINY);
    tiny_skips(t, skip ? skip - 1 : draw_skip(t, QY_CLASS_TINY));
    return !skip && qy_draw_accepts(t, QY_CLASS_TINY, rate_of(t), n);
}
