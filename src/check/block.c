// SPDX-License-Identifier: MIT
// block.c: see block.h.
#include "check/block.h"

#include <string.h>

#include "base/num.h"
#include "check/alone.h"
#include "check/evidence.h"
#include "check/find.h"
#include "check/guards.h"
#include "check/life.h"
#include "check/mismatch.h"
#include "check/quarantine.h"
#include "check/threads.h"
#include "check/zone.h"
#include "heap/alloc_fast.h"
#include "heap/foreign.h"
#include "heap/free_fast.h"
#include "rt/diag.h"

// ---- allocation -------------------------------------------------------------------------------------------------

QY_COLD void qy_check_bad_argument(const qy_check_call_t *call, const char *detail) {
    qy_check_fault_t f = {.kind = "bad-argument", .function = call->function, .detail = detail};
    qy_check_report(&f, &call->from);
}

// n: with the zone, which is not zeroed: a neighbour may look at it.
static void *block_from_heap(size_t align, size_t n, bool zero) {
    if (align > QY_ALIGN_MIN) {
        void *p = qy_aligned_alloc(align, n);
        return p && zero ? memset(p, 0, n - QY_CHECK_ZONE) : p;
    }
    if (n > QY_MEDIUM_MAX) return zero ? qy_calloc_slow(n) : qy_alloc_slow(n);
    void *p = n <= QY_SMALL_MAX ? qy_alloc_small(n) : qy_alloc_medium(n);
    return p && zero ? memset(p, 0, n - QY_CHECK_ZONE) : p;
}

static void record_make(
    qy_check_record_t *r, const qy_check_call_t *call, size_t n, size_t asked, uint32_t stack, uint32_t ordinal) {
    uint64_t word = n | (uint64_t)call->family << QY_CHECK_FAMILY_SHIFT |
                    (uint64_t)(asked ? qy_log2_floor(asked) : 0) << QY_CHECK_ALIGN_SHIFT;
    atomic_store_explicit(&r->word, qy_check_with_state(0, QY_CHECK_BUSY), memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    __atomic_store_n(&r->alloc_stack, stack, __ATOMIC_RELAXED);
    __atomic_store_n(&r->free_stack, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&r->ordinal, ordinal, __ATOMIC_RELAXED);
    __atomic_store_n(&r->alloc_thread, qy_check_thread_number(), __ATOMIC_RELAXED);
    __atomic_store_n(&r->free_thread, 0, __ATOMIC_RELAXED);
    atomic_store_explicit(&r->word, qy_check_with_state(word, QY_CHECK_LIVE), memory_order_release);
}

void *qy_check_alloc(const qy_check_call_t *call, size_t align, size_t n, size_t asked) {
    if (QY_UNLIKELY(!qy_check_is_up())) qy_check_start();
    if (QY_UNLIKELY(n > PTRDIFF_MAX - QY_CHECK_ZONE)) {
        // The largest number that is none is what some programs ask for to be refused.
        if (n > PTRDIFF_MAX) qy_check_bad_argument(call, "the size is a negative number, or as large as one");
        return qy_out_of_memory();
    }
    uint32_t stack = qy_check_stack(&call->from), ordinal = qy_check_ordinal(stack);
    void *p = qy_check_guards_on ? qy_check_guards_alloc(call, align, n, asked, stack, ordinal) : NULL;
    if (p) return p;
    p = block_from_heap(align, n + QY_CHECK_ZONE, call->family == QY_CHECK_CALLOC);
    if (!p) return NULL;
    qy_check_place_t place = qy_check_place_open_quickly(p, qy_map_tag(p) & QY_TAG_CLASS);
    if (QY_UNLIKELY(!place.record)) place = qy_check_place_open(p);
    if (QY_UNLIKELY(!place.record)) return p;  // unknown: its free is not checked either
    qy_check_zone_make(place.begin, n, place.room);
    record_make(place.record, call, n, asked, stack, ordinal);
    qy_check_live_add((int64_t)place.room);
    return p;
}

// ---- free ---------------------------------------------------------------------------------------------------------

static qy_check_fault_t free_fault(const char *kind, const qy_check_call_t *call, const void *p) {
    return (qy_check_fault_t){.kind = kind, .function = call->function, .address = (uintptr_t)p};
}

QY_INLINE qy_check_place_t place_of(uintptr_t p) {
    qy_check_place_t place = qy_check_place_quickly(p);
    return QY_LIKELY(place.record != NULL) ? place : qy_check_place(p);
}

static void fault_of_block(qy_check_fault_t *f, const qy_check_block_t *b) {
    f->has_block = true;
    f->block = *b;
    f->offset = (int64_t)(f->address - b->address);
}

// What is no live block of ours is reported. True: it is one that nothing is known of.
QY_COLD static bool is_unknown_block(const qy_check_call_t *call, void *p) {
    qy_check_fault_t f = free_fault("invalid-free", call, p);
    qy_check_block_t b;
    bool known = qy_check_find((uintptr_t)p, &b);
    if (known && b.address == (uintptr_t)p) {
        // Of two that free it at once, one may come here while the other is at it.
        f.kind = "double-free";
        fault_of_block(&f, &b);
    } else if (known && !(b.freed && (uintptr_t)p - b.address >= b.size)) {
        f.kind = "interior-free";
        fault_of_block(&f, &b);
    } else {
        qy_object_kind_t kind = qy_lookup(p).kind;
        if (kind == QY_OBJECT_BLOCK || kind == QY_OBJECT_RUN || kind == QY_OBJECT_HUGE || kind == QY_OBJECT_ZERO)
            return !qy_check_place((uintptr_t)p).record;
        if (kind == QY_OBJECT_FREE) f.kind = "double-free";
        f.detail = kind == QY_OBJECT_FOREIGN ? qy_foreign_detail(p)
                   : kind == QY_OBJECT_FREE  ? "it was freed before; nothing is known of it any more"
                                             : "no block begins here";
    }
    qy_check_report(&f, &call->from);
    return false;
}

// The oldest of the quarantine: nobody may know its address any more.
static void quarantine_leaves_block(const qy_check_place_t *place) {
    uint64_t word = qy_check_word(place->record);
    qy_assert(qy_check_state_of(word) == QY_CHECK_FREED);
    qy_check_verify(place, word);
    atomic_store_explicit(&place->record->word, qy_check_with_state(word, QY_CHECK_GONE), memory_order_release);
    qy_check_place_close(place);
    // The kernel may give the addresses of a huge object to others, such as a thread's stack.
    if (!place->sheet->size && qy_lookup((void *)place->begin).kind == QY_OBJECT_HUGE) qy_check_place_forget(place);
    qy_free_fast((void *)place->begin);
}

// The caller has the block; true: so has nobody else.
static bool block_take(const qy_check_place_t *place, uint64_t *ret_word) {
    *ret_word = qy_check_word(place->record);
    return qy_check_state_of(*ret_word) == QY_CHECK_LIVE && qy_check_place_is_good(place) &&
           qy_check_exchange(&place->record->word, ret_word, qy_check_with_state(*ret_word, QY_CHECK_BUSY));
}

// A live block becomes one that waits.
static void block_end(const qy_check_call_t *call, const qy_check_place_t *place, uint64_t word) {
    qy_check_record_t *r = place->record;
    qy_check_fill(place->begin, word & QY_CHECK_SIZE);
    __atomic_store_n(&r->free_stack, qy_check_stack(&call->from), __ATOMIC_RELAXED);
    __atomic_store_n(&r->free_thread, qy_check_thread_number(), __ATOMIC_RELAXED);
    atomic_store_explicit(&r->word, qy_check_with_state(word, QY_CHECK_FREED), memory_order_release);
    qy_check_live_add(-(int64_t)place->room);
    qy_check_quarantine(place->begin, place->room, quarantine_leaves_block);
}

// Before the block is taken, so that reports know it as live.
static void block_verify(const qy_check_call_t *call, const qy_check_place_t *place, const qy_check_claim_t *claim) {
    uint64_t word = qy_check_word(place->record);
    if (qy_check_state_of(word) != QY_CHECK_LIVE) return;
    qy_check_mismatch(call, place, word, claim);
    qy_check_verify(place, word);
    qy_check_verify_before(place);
}

void qy_check_free(const qy_check_call_t *call, void *p, const qy_check_claim_t *claim) {
    if (!p) return;
    if (qy_guard_is_near(p)) {
        qy_check_guards_free(call, p, claim);
        return;
    }
    qy_check_place_t place = place_of((uintptr_t)p);
    uint64_t word;
    bool begins = place.record && place.begin == (uintptr_t)p;
    if (QY_LIKELY(begins)) block_verify(call, &place, claim);
    if (QY_LIKELY(begins && block_take(&place, &word))) block_end(call, &place, word);
    else if (is_unknown_block(call, p)) qy_free_fast(p);
}

static void *realloc_guarded(const qy_check_call_t *call, void *p, size_t n) {
    size_t size;
    if (!qy_check_guards_size(call, p, &size)) return NULL;
    void *q = qy_check_alloc(call, QY_ALIGN_MIN, n, 0);
    if (!q) return NULL;
    memcpy(q, p, qy_min(n, size));
    qy_check_free(call, p, NULL);
    return q;
}

void *qy_check_realloc(const qy_check_call_t *call, void *p, size_t n) {
    if (!p) return qy_check_alloc(call, QY_ALIGN_MIN, n, 0);
    if (!n) {
        qy_check_free(call, p, NULL);
        return NULL;
    }
    if (qy_guard_is_near(p)) return realloc_guarded(call, p, n);
    qy_check_place_t place = place_of((uintptr_t)p);
    uint64_t word = place.record && place.begin == (uintptr_t)p ? qy_check_word(place.record) : 0;
    bool is_live = qy_check_state_of(word) == QY_CHECK_LIVE;
    if (QY_UNLIKELY(!is_live) && !is_unknown_block(call, p)) return NULL;
    void *q = qy_check_alloc(call, QY_ALIGN_MIN, n, 0);
    if (!q) return NULL;
    memcpy(q, p, qy_min(n, is_live ? word & QY_CHECK_SIZE : qy_usable_size(p)));
    qy_check_free(call, p, NULL);
    return q;
}

size_t qy_check_size(const qy_check_call_t *call, const void *p) {
    if (!p) return 0;
    size_t size;
    if (qy_guard_is_near(p)) return qy_check_guards_size(call, p, &size) ? size : 0;
    qy_check_place_t place = place_of((uintptr_t)p);
    uint64_t word = place.record && place.begin == (uintptr_t)p ? qy_check_word(place.record) : 0;
    if (QY_LIKELY(qy_check_state_of(word) == QY_CHECK_LIVE)) return word & QY_CHECK_SIZE;
    return is_unknown_block(call, (void *)(uintptr_t)p) ? qy_usable_size(p) : 0;
}
