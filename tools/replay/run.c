// SPDX-License-Identifier: MIT
// run.c: one thread of a plan. Compiled with -fno-builtin-malloc and its kin: each call is made.
#include <malloc.h>
#include <stdlib.h>

#include "clock.h"
#include "replay.h"
#include "touch.h"

// What a loop does besides the operations; constants of each copy of it.
enum { TIMED = 1,
    EXACT = 2,  // one thread at a time: the live bytes are known at each operation
    TALK = 4,   // tell each operation
    ASK = 8 };  // how many bytes a block has, as malloc says

typedef struct worker {
    qy_instance_t *instance;
    qy_seat_t *seat;
    uint32_t thread;
    unsigned align;  // of the next word, as log2; 0: none
    uint64_t wide;   // upper half of the size of the next word
    uint64_t most;   // to be written of its block, UINT64_MAX if that is not known
} worker_t;

#define INLINE static inline __attribute__((always_inline))

INLINE void record(qy_seat_t *seat, unsigned kind, uint64_t ticks) {
    ticks = ticks > qy_timer_ticks ? ticks - qy_timer_ticks : 0;
    qy_histogram_t *h = &seat->histograms[kind];
    unsigned shift = ticks >> (QY_HISTOGRAM_SUB + 1) ? 63 - QY_HISTOGRAM_SUB - (unsigned)__builtin_clzll(ticks) : 0;
    uint64_t bucket = ((uint64_t)shift << QY_HISTOGRAM_SUB) + (ticks >> shift);
    h->buckets[bucket < QY_HISTOGRAM_BUCKETS ? bucket : QY_HISTOGRAM_BUCKETS - 1]++;
    h->count++;
    h->sum += ticks;
    if (ticks > h->max) h->max = ticks;
}

INLINE void *aligned(unsigned align, size_t size) {
    void *p = 0;
    size_t bytes = (size_t)1 << align;
    if (posix_memalign(&p, bytes < sizeof(void *) ? sizeof(void *) : bytes, size)) return 0;
    return p;
}

INLINE void *call(worker_t *w, unsigned kind, uint32_t slot, void *old, uint64_t size, int mode) {
    void *p = 0;
    uint64_t begin = mode & TIMED ? qy_tick_begin() : 0;
    switch (kind) {
    case QY_PLAN_MALLOC: p = malloc(size); break;
    case QY_PLAN_CALLOC: p = calloc(1, size); break;
    case QY_PLAN_MEMALIGN: p = aligned(w->align, size); break;
    case QY_PLAN_REALLOC: p = realloc(old, size); break;
    default: free(old);
    }
    uint64_t ticks = mode & TIMED ? qy_tick_end() - begin : 0;
    if (mode & TIMED) record(w->seat, kind, ticks);
    if (mode & TALK)
        qy_classic_call(
            w->instance, kind, slot, kind == QY_PLAN_FREE || kind == QY_PLAN_FREE_NULL ? old : p, size, ticks);
    return p;
}

// Only its own thread writes these; the sampler reads them.
INLINE void account(worker_t *w, uint64_t grown, int mode) {
    qy_seat_t *seat = w->seat;
    atomic_store_explicit(
        &seat->live, atomic_load_explicit(&seat->live, memory_order_relaxed) + (int64_t)grown, memory_order_relaxed);
    atomic_store_explicit(
        &seat->operations, atomic_load_explicit(&seat->operations, memory_order_relaxed) + 1, memory_order_relaxed);
    if (!(mode & EXACT)) return;
    qy_instance_t *i = w->instance;
    i->exact_live += grown;
    if (i->exact_live > i->exact_peak) i->exact_peak = i->exact_live;
    if (++i->exact_operations != i->curve_next) return;
    i->curve[i->curve_length++] = i->exact_live;
    i->curve_next += qy_config.curve_step;
}

INLINE void publish(qy_slot_t *slot, uint64_t word) {
    uint32_t stamp = atomic_load_explicit(&slot->stamp, memory_order_relaxed) + 1;
    if (__builtin_expect(word & QY_PLAN_SIGNAL, 0)) qy_signal_stamp(slot, stamp);
    else atomic_store_explicit(&slot->stamp, stamp, memory_order_relaxed);
}

INLINE uint32_t stamp_of(qy_slot_t *slot) { return atomic_load_explicit(&slot->stamp, memory_order_relaxed); }

// Write into a new block; the stamp of its contents is the one this operation makes.
static void verify_new(worker_t *w, unsigned kind, uint32_t index, qy_slot_t *slot) {
    qy_examine_address(w->seat, slot->ptr, slot->size, kind == QY_PLAN_MEMALIGN ? w->align : 0);
    if (kind == QY_PLAN_CALLOC) qy_examine_zero(w->seat, w->thread, slot->ptr, slot->size, index);
    qy_fill(slot->ptr, slot->size, index, stamp_of(slot) + 1);
}

INLINE void allocate(worker_t *w, unsigned kind, uint64_t word, int mode) {
    uint32_t index = qy_plan_index(word);
    qy_slot_t *slot = &w->instance->slots[index];
    uint64_t size = w->wide | qy_plan_value(word);
    char *p = call(w, kind, index, 0, size, mode);
    slot->ptr = p;
    slot->size = p ? size : 0;
    if (mode & ASK) w->seat->usable += malloc_usable_size(p);
    if (__builtin_expect(!p, 0)) w->seat->failed[kind]++;
    else if (qy_config.verify) verify_new(w, kind, index, slot);
    else qy_touch_block(p, 0, size, w->most, qy_config.touch);
    slot->most = w->most;
    w->most = UINT64_MAX;
    account(w, slot->size, mode);
    publish(slot, word);
    w->wide = 0;
    w->align = 0;
}

// A block that did not grow keeps its place and size. The contents that both have must be the same.
INLINE void reallocate(worker_t *w, uint64_t word, int mode) {
    uint32_t index = qy_plan_index(word);
    qy_slot_t *slot = &w->instance->slots[index];
    uint64_t size = w->wide | qy_plan_value(word), before = slot->size;
    char *p = call(w, QY_PLAN_REALLOC, index, slot->ptr, size, mode);
    // A block that was none has what it is given; one that grows keeps it, if nothing else is said.
    if (!slot->ptr || w->most != UINT64_MAX) slot->most = w->most;
    w->most = UINT64_MAX;
    if (__builtin_expect(!p && size, 0)) {
        w->seat->failed[QY_PLAN_REALLOC]++;
        // The stamp moves on, and with it what the contents must be.
        if (qy_config.verify && slot->ptr) qy_fill(slot->ptr, before, index, stamp_of(slot) + 1);
    } else {
        slot->ptr = p;
        slot->size = p ? size : 0;
        if (mode & ASK) w->seat->usable += malloc_usable_size(p);
        if (p && qy_config.verify) {
            qy_examine(w->seat, w->thread, p, before < size ? before : size, index, stamp_of(slot));
            verify_new(w, QY_PLAN_REALLOC, index, slot);
        } else if (p) {
            qy_touch_block(p, before, size, slot->most, qy_config.touch);
        }
    }
    account(w, slot->size - before, mode);
    publish(slot, word);
    w->wide = 0;
}

INLINE void release(worker_t *w, uint64_t word, int mode) {
    uint32_t index = qy_plan_index(word);
    qy_slot_t *slot = &w->instance->slots[index];
    void *p = slot->ptr;
    uint64_t size = slot->size;
    if (qy_config.verify && p) qy_examine(w->seat, w->thread, p, size, index, stamp_of(slot));
    slot->ptr = 0;
    slot->size = 0;
    call(w, QY_PLAN_FREE, index, p, size, mode);
    account(w, -size, mode);
    publish(slot, word);
}

static void stats(worker_t *w) {
    uint64_t begin = qy_tick_begin();
    qy_classic_stats(w->instance);
    if (w->seat->histograms) record(w->seat, QY_PLAN_STATS, qy_tick_end() - begin);
}

// What is no operation of the allocator.
static void other(worker_t *w, uint64_t word) {
    switch (qy_plan_kind(word)) {
    case QY_PLAN_WAIT: qy_wait_stamp(w->seat, &w->instance->slots[qy_plan_index(word)], qy_plan_value(word)); break;
    case QY_PLAN_TIME:
        if (qy_config.real) qy_sleep_until(w->seat, w->instance->start_ns + (word >> QY_PLAN_INDEX_SHIFT));
        break;
    case QY_PLAN_SPAWN: qy_spawn(w->instance, w->seat, qy_plan_index(word), qy_plan_value(word)); break;
    case QY_PLAN_JOIN: qy_join(w->instance, w->seat, qy_plan_index(word)); break;
    case QY_PLAN_WIDE: w->wide = (uint64_t)qy_plan_value(word) << 32; break;
    case QY_PLAN_TOUCH: w->most = (uint64_t)qy_plan_value(word) * QY_LINE; break;
    case QY_PLAN_LOOK:
        if (qy_looks && !w->instance->number && !w->instance->play_ns) qy_look(qy_plan_value(word));
        break;
    default: w->align = qy_plan_value(word); break;
    }
}

INLINE void words(worker_t *w, const qy_part_t *part, int mode) {
    // Slots are found late in a large table; a program would have its pointers nearer.
    enum { AHEAD = 8 };
    qy_slot_t *slots = w->instance->slots;
    for (uint32_t at = 0; at < part->count; at++) {
        uint64_t word = part->words[at];
        if (at + AHEAD < part->count && qy_plan_kind(part->words[at + AHEAD]) <= QY_PLAN_FREE)
            __builtin_prefetch(&slots[qy_plan_index(part->words[at + AHEAD])], 1);
        switch (qy_plan_kind(word)) {
        case QY_PLAN_MALLOC: allocate(w, QY_PLAN_MALLOC, word, mode); break;
        case QY_PLAN_CALLOC: allocate(w, QY_PLAN_CALLOC, word, mode); break;
        case QY_PLAN_MEMALIGN: allocate(w, QY_PLAN_MEMALIGN, word, mode); break;
        case QY_PLAN_REALLOC: reallocate(w, word, mode); break;
        case QY_PLAN_FREE: release(w, word, mode); break;
        case QY_PLAN_FREE_NULL:
            call(w, QY_PLAN_FREE_NULL, 0, 0, 0, mode);
            account(w, 0, mode);
            break;
        case QY_PLAN_STATS:
            stats(w);
            account(w, 0, mode);
            break;
        default: other(w, word); break;
        }
    }
}

static __attribute__((noinline)) void words_plain(worker_t *w, const qy_part_t *part) { words(w, part, 0); }
static __attribute__((noinline)) void words_exact(worker_t *w, const qy_part_t *part) { words(w, part, EXACT); }
static __attribute__((noinline)) void words_timed(worker_t *w, const qy_part_t *part) { words(w, part, TIMED); }
static __attribute__((noinline)) void words_talk(worker_t *w, const qy_part_t *part) { words(w, part, TIMED | TALK); }
static __attribute__((noinline)) void words_looks(worker_t *w, const qy_part_t *part) { words(w, part, ASK); }

void qy_run(qy_instance_t *instance, uint32_t thread, qy_seat_t *seat) {
    worker_t w = {.instance = instance, .seat = seat, .thread = thread, .most = UINT64_MAX};
    void (*const play)(worker_t *, const qy_part_t *) = instance->curve_next ? words_exact
                                                        : qy_config.talk     ? words_talk
                                                        : qy_config.timed    ? words_timed
                                                        : qy_looks           ? words_looks
                                                                             : words_plain;
    const qy_plan_t *plan = instance->plan;
    uint64_t begin = qy_now_ns();
    for (uint32_t part = plan->first[thread]; part != QY_NONE; part = plan->parts[part].next) {
        if (plan->strict) qy_await_turn(seat, instance, thread, part);
        else qy_enter_epoch(seat, instance, plan->parts[part].epoch);
        play(&w, &plan->parts[part]);
        if (plan->strict) qy_pass_turn(instance, part);
        else qy_leave_epoch(instance, plan->parts[part].epoch);
    }
    seat->busy_ns += qy_now_ns() - begin;
}
