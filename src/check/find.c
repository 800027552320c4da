// SPDX-License-Identifier: MIT
// find.c: see find.h, and check.h for the rest.
#include "check/find.h"

#include "check/guarded.h"
#include "check/pool_blocks.h"
#include "check/threads.h"
#include "check/zone.h"
#include "pages/map.h"

// False: the record changed meanwhile, or is of no block.
static bool block_read(const qy_check_place_t *place, qy_check_block_t *ret) {
    qy_check_record_t *r = place->record;
    uint64_t word = qy_check_word(r);
    qy_check_state_t state = qy_check_state_of(word);
    if (state == QY_CHECK_NONE || state == QY_CHECK_BUSY) return false;
    *ret = (qy_check_block_t){
        .address = place->begin,
        .size = word & QY_CHECK_SIZE,
        .alloc_stack = __atomic_load_n(&r->alloc_stack, __ATOMIC_RELAXED),
        .free_stack = __atomic_load_n(&r->free_stack, __ATOMIC_RELAXED),
        .alloc_thread = qy_check_thread_id(__atomic_load_n(&r->alloc_thread, __ATOMIC_RELAXED)),
        .free_thread = qy_check_thread_id(__atomic_load_n(&r->free_thread, __ATOMIC_RELAXED)),
        .ordinal = __atomic_load_n(&r->ordinal, __ATOMIC_RELAXED),
        .family = (qy_check_family_t)(word >> QY_CHECK_FAMILY_SHIFT & 15),
        .freed = state != QY_CHECK_LIVE,
    };
    if (!ret->freed) ret->free_stack = ret->free_thread = 0;
    atomic_thread_fence(memory_order_acquire);
    return qy_check_word(r) == word && qy_check_place_is_good(place);
}

bool qy_check_block_at(const qy_check_place_t *place, qy_check_block_t *ret) {
    return place->record ? block_read(place, ret) : qy_check_guarded_find(place->begin, ret);
}

bool qy_check_find(uintptr_t address, qy_check_block_t *ret) {
    if (qy_check_may_be_pool((const void *)address) && qy_check_pool_find(address, ret)) return true;
    if (qy_guard_is_near((const void *)address)) return qy_check_guarded_find(address, ret);
    qy_check_place_t place = qy_check_place(address);
    return qy_check_block_at(&place, ret);
}

typedef struct live_each {
    bool (*visit)(const qy_check_block_t *b, void *arg);
    void *arg;
} live_each_t;

static bool live_visit(const qy_check_place_t *place, void *arg) {
    live_each_t *each = arg;
    qy_check_block_t b;
    return !block_read(place, &b) || b.freed || each->visit(&b, each->arg);
}

void qy_check_each_live(bool (*visit)(const qy_check_block_t *b, void *arg), void *arg) {
    live_each_t each = {visit, arg};
    qy_check_each_place(live_visit, &each);
    qy_check_guarded_each_live(visit, arg);
}

// Where address space is scarce the heap gives chunks back to the kernel, and what is there by now may be the program's
// own. A block that is live or waits has its memory. A signal handler may have interrupted what changes the map.
static bool is_elsewhere(const qy_check_place_t *place, uintptr_t at) {
    qy_check_state_t state = place->record ? qy_check_state_of(qy_check_word(place->record)) : QY_CHECK_NONE;
    if (state == QY_CHECK_LIVE || state == QY_CHECK_FREED || qy_lock_is_mine(qy_map_lock())) return false;
    return !qy_map_record((const void *)at);
}

// It does not stay within one live block.
QY_COLD static void access_fault(
    const qy_check_place_t *place, uintptr_t at, size_t n, bool is_write, const char *function) {
    qy_check_block_t b, next;
    if (is_elsewhere(place, at)) return;
    bool known = qy_check_block_at(place, &b);
    // What lies between two blocks is the zone of one, or of none. An access there that reaches the next block, or
    // begins nearer to it, underflows it.
    bool under = false;
    if (!known || at - b.address >= b.size) {
        qy_check_place_t behind = place->record ? qy_check_place_behind(place) : qy_check_place(at + n - 1);
        under = qy_check_block_at(&behind, &next) && next.address > at;
        uint64_t left = under ? next.address - at : 0;
        under = under && (n > left || left < (known ? at - b.address - b.size : QY_CHECK_ZONE + 1));
    }
    if (under) b = next;
    if (!known && !under) return;
    const char *kind = b.freed ? (is_write ? "use-after-free-write" : "use-after-free-read")
                       : under ? (is_write ? "underflow-write" : "underflow-read")
                               : (is_write ? "overflow-write" : "overflow-read");
    qy_check_fault_t f = {.kind = kind,
        .function = function,
        .address = at,
        .is_write = is_write,
        .bytes = n,
        .has_block = true,
        .block = b,
        .offset = (int64_t)(at - b.address)};
    qy_check_report(&f, NULL);
}

// The same as place_has, in a few instructions, where the unit's own sheet has the block. Not known is false: then the
// exact way is gone. A sheet that is replaced meanwhile has another version.
QY_INLINE bool live_quickly(uintptr_t at, size_t n) {
    const qy_check_sheet_t *s = qy_check_sheet(at);
    if (QY_UNLIKELY(!s)) return false;
    uint32_t version = s->version;
    uintptr_t offset = at - s->begin;
    size_t size = s->size;
    if (offset >= (size ? QY_UNIT : s->extent)) return false;
    uint32_t i = size ? (uint32_t)((uint64_t)offset * s->reciprocal >> 32) : 0;
    if (QY_UNLIKELY(i >= s->count)) return false;
    uint64_t word = qy_check_word(&s->record[i]), bytes = word & QY_CHECK_SIZE;
    offset -= i * size;
    bool inside = qy_check_state_of(word) == QY_CHECK_LIVE && offset <= bytes && n <= bytes - offset;
    atomic_thread_fence(memory_order_acquire);
    return inside && !(version & 1) && s->version == version;
}

// Does [at, at + n), which begins in the place, lie within its block, and is that live?
static bool place_has(const qy_check_place_t *place, uintptr_t at, size_t n) {
    if (QY_UNLIKELY(!place->record)) return false;
    uint64_t word = qy_check_word(place->record), size = word & QY_CHECK_SIZE, offset = at - place->begin;
    return qy_check_state_of(word) == QY_CHECK_LIVE && offset <= size && n <= size - offset;
}

// Apart, so that the quick way saves no registers.
QY_NOINLINE static bool live_exactly(const void *p, size_t n) {
    if (qy_guard_is_near(p)) return qy_guard_has((uintptr_t)p, n);
    qy_check_place_t place = qy_check_place((uintptr_t)p);
    return place_has(&place, (uintptr_t)p, n);
}

QY_NOINLINE static void access_exactly(const void *p, size_t n, bool is_write, const char *function) {
    uintptr_t at = (uintptr_t)p;
    if (qy_guard_is_near(p)) {
        qy_check_guarded_access(at, n, is_write, function);
        return;
    }
    qy_check_place_t place = qy_check_place(at);
    if (!place_has(&place, at, n)) access_fault(&place, at, n, is_write, function);
}

bool qy_check_is_live(const void *p, size_t n) {
    if (qy_check_may_be_pool(p)) {
        bool known, is_live = qy_check_pool_is_live((uintptr_t)p, n, &known);
        if (known) return is_live;
    }
    return QY_LIKELY(live_quickly((uintptr_t)p, n)) || live_exactly(p, n);
}

void qy_check_access(const void *p, size_t n, bool is_write, const char *function) {
    // A pool's chunk may be a block of the heap.
    if (qy_check_may_be_pool(p) && qy_check_pool_access((uintptr_t)p, n, is_write, function)) return;
    if (!QY_LIKELY(live_quickly((uintptr_t)p, n))) access_exactly(p, n, is_write, function);
}
