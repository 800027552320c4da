// SPDX-License-Identifier: MIT
// guard.c: see guard.h.
//
//   | no access | slot: pages of a block, no access | slot | ... | cursor: never used yet | ...
//
// `owner` has a word for each page: the slot that it is a part of, 0: none. A new slot is cut at the cursor, out of
// pages that nobody owns and slots that were freed. The cursor goes round: all others are used before one that was just
// freed. Slots that are met and not used up leave pages without an owner and without access.
#include "guard/guard.h"

#include "base/num.h"
#include "os/guard.h"
#include "os/os.h"

// With marks, the space becomes writable in such steps.
#define STEP ((size_t)2 << 20)
#define SPACE_LEAST ((size_t)1 << 20)
// Without access before the first slot, and looked at on both sides of an address that is nobody's: a stray access.
#define STRAY ((size_t)1 << 20)
// Pages that a call looks at in vain before it gives up.
#define LOOKS 4096u
// Refusals in a row after which the kernel is not asked again.
#define REFUSALS 64u

static struct {
    qy_lock_t lock;
    bool marks;
    qy_guard_limits_t limits;
    qy_guard_slots_t slots;
    size_t page;
    unsigned page_shift;              // log2 of it
    _Atomic bool strayed;             // a page that is nobody's was opened
    uint32_t first;                   // page of the first slot
    uint32_t pages, cursor;           // [lock] cursor: the page where the next slot may begin
    uint32_t writable;                // [lock] pages of the space that were made writable, with marks
    uint32_t refusals;                // [lock] in a row
    uint64_t calls;                   // [lock] whose turn it is
    qy_guard_stats_t stats;           // [lock]
    _Atomic size_t live, live_bytes;  // as in stats; for all
} guard;

_Atomic(uintptr_t) qy_guard_base;
size_t qy_guard_bytes;

qy_lock_t *qy_guard_lock(void) { return &guard.lock; }
bool qy_guard_is_by_marks(void) { return guard.marks; }

static char *page_at(uint32_t page) {
    return (char *)atomic_load_explicit(&qy_guard_base, memory_order_relaxed) + (size_t)page * guard.page;
}
static uint32_t page_of(uintptr_t address) {
    return (uint32_t)((address - atomic_load_explicit(&qy_guard_base, memory_order_relaxed)) >> guard.page_shift);
}
static uint32_t slot_pages(size_t n) { return (uint32_t)((qy_max(n, 1) + guard.page - 1) >> guard.page_shift); }

// ---- start ----------------------------------------------------------------------------------------------------------

bool qy_guard_start(const qy_guard_limits_t *limits) {
    if (qy_guard_base) return false;
    guard.page = qy_os_page_size();
    guard.page_shift = qy_log2_floor(guard.page);
    guard.limits = *limits;
    guard.marks = limits->way == QY_GUARD_BEST && qy_os_guards_work();
    if (!guard.marks) {
        // A live slot is one mapping more, and so is what lies behind it.
        size_t most = qy_os_mappings_most() / 4;
        guard.limits.live = qy_min(limits->live, most * guard.page);
    }
    size_t bytes = qy_round_up(qy_max(limits->space, SPACE_LEAST), STEP);
    char *base = NULL;
    for (; bytes >= SPACE_LEAST && !(base = qy_os_reserve_uncharged(bytes)); bytes /= 2) {}
    if (!base) return false;
    if (!qy_guard_slots_start(&guard.slots, (uint32_t)(bytes / guard.page), limits->slots)) {
        qy_os_unmap(base, bytes);
        return false;
    }
    guard.pages = (uint32_t)(bytes / guard.page);
    guard.first = guard.cursor = (uint32_t)(qy_min(STRAY, bytes / 4) / guard.page);
    qy_guard_bytes = bytes;
    atomic_store_explicit(&qy_guard_base, (uintptr_t)base, memory_order_release);
    return true;
}

// ---- pages ----------------------------------------------------------------------------------------------------------

// With marks: pages up to this one are writable, but for those that are marked.
static bool make_writable(uint32_t end) {
    while (guard.writable < end) {
        uint32_t more = (uint32_t)(STEP / guard.page);
        if (more > guard.pages - guard.writable) more = guard.pages - guard.writable;
        char *at = page_at(guard.writable);
        if (!qy_os_commit(at, more * guard.page)) return false;
        // All of it loses access at once. Where that is refused it is as nothing was asked for: it was not used yet.
        if (!qy_os_guard(at, more * guard.page)) {
            qy_os_decommit(at, more * guard.page);
            return false;
        }
        guard.writable += more;
    }
    return true;
}

static bool open_pages(uint32_t first, uint32_t count) {
    if (!guard.marks) return qy_os_commit(page_at(first), count * guard.page) && qy_os_readable(page_at(first));
    return make_writable(first + count) && qy_os_unguard(page_at(first), count * guard.page);
}

// What cannot be marked (locked pages, on some kernels) loses access by the other way, or none.
static bool close_pages(uint32_t first, uint32_t count) {
    char *at = page_at(first);
    if (guard.marks && qy_os_guard(at, count * guard.page)) return true;
    return !guard.marks && qy_os_decommit(at, count * guard.page);
}

// ---- slots ----------------------------------------------------------------------------------------------------------

// The slots that [first, first + count) were part of are no more.
static void forget_slots(uint32_t first, uint32_t count) {
    for (uint32_t i = first; i < first + count; i++) {
        uint32_t owner = qy_guard_owner(&guard.slots, i);
        if (owner) qy_guard_slot_delete(&guard.slots, owner);
    }
}

// May its pages be a part of another slot? Those that were opened lose access first.
static bool slot_is_free(qy_guard_slot_t *s) {
    if (atomic_load_explicit(&s->state, memory_order_relaxed) != QY_SLOT_FREED) return false;
    if (!s->opened) return true;
    if (close_pages(s->first, s->pages)) {
        s->opened = false;
        return true;
    }
    atomic_store_explicit(&s->state, QY_SLOT_STUCK, memory_order_relaxed);
    guard.stats.stuck++;
    return false;
}

// `count` pages from the cursor on that can be a slot; 0: none were found.
static uint32_t find_pages(uint32_t count) {
    uint32_t first = guard.cursor, at = first;
    bool turned = false;
    for (uint32_t looks = 0; looks < LOOKS + count; looks++) {
        if (at - first >= count) return first;
        if (first + count > guard.pages) {
            guard.cursor = guard.first;
            if (turned) return 0;
            turned = true;
            guard.stats.turns++;
            first = at = guard.first;
            continue;
        }
        uint32_t owner = qy_guard_owner(&guard.slots, at);
        qy_guard_slot_t *s = owner ? qy_guard_slot(&guard.slots, owner) : NULL;
        // A slot is forgotten as a whole: what is left of it has no owner.
        at = s ? s->first + s->pages : at + 1;
        if (s && !slot_is_free(s)) first = at;
    }
    guard.cursor = first;  // the next call goes on from here
    return 0;
}

static uintptr_t place_block(uint32_t first, uint32_t data, size_t align, size_t n, qy_guard_side_t side) {
    uintptr_t begin = (uintptr_t)page_at(first), end = begin + data * guard.page;
    if (side == QY_GUARD_TURNS) side = guard.calls++ % 2 ? QY_GUARD_BEFORE : QY_GUARD_BEHIND;
    return side == QY_GUARD_BEFORE ? begin : qy_round_down(end - n, align);
}

static bool may_have(size_t n) {
    return guard.refusals < REFUSALS && guard.stats.live_bytes + slot_pages(n) * guard.page <= guard.limits.live;
}

static void live_changed(void) {
    QY_NEEDS(&guard.lock);
    atomic_store_explicit(&guard.live, guard.stats.live, memory_order_relaxed);
    atomic_store_explicit(&guard.live_bytes, guard.stats.live_bytes, memory_order_relaxed);
}

static void *slot_refused(void) {
    QY_NEEDS(&guard.lock);
    guard.stats.refused++;
    return NULL;
}

static void *slot_alloc(size_t align, size_t n, qy_guard_side_t side, const qy_guard_note_t *born, uint64_t tag,
    uint32_t *ret_slot) {
    QY_NEEDS(&guard.lock);
    if (n > guard.limits.live || align > guard.page) return NULL;
    if (!may_have(n)) return slot_refused();
    uint32_t data = slot_pages(n), first = find_pages(data + 1);
    if (!first) return slot_refused();
    forget_slots(first, data + 1);
    uint32_t number = qy_guard_slot_new(&guard.slots);
    if (!number) return slot_refused();
    if (atomic_load(&guard.strayed)) close_pages(first, data + 1);
    if (!open_pages(first, data)) {
        qy_guard_slot_delete(&guard.slots, number);
        close_pages(first, data);
        guard.refusals++;
        return slot_refused();
    }
    guard.refusals = 0;
    qy_guard_slot_t *s = qy_guard_slot(&guard.slots, number);
    s->address = place_block(first, data, align, n, side);
    s->size = n;
    s->born = *born;
    s->died = (qy_guard_note_t){0};
    s->tag = tag;
    s->first = first;
    s->pages = data + 1;
    if (guard.limits.prepare) guard.limits.prepare(s->address, n);
    atomic_store_explicit(&s->state, QY_SLOT_LIVE, memory_order_release);
    for (uint32_t i = first; i < first + s->pages; i++) qy_guard_own(&guard.slots, i, number);
    guard.cursor = first + s->pages;
    guard.stats.live_bytes += data * guard.page;
    guard.stats.live++;
    guard.stats.made++;
    live_changed();
    *ret_slot = number;
    return (void *)s->address;
}

void *qy_guard_alloc(size_t align, size_t n, qy_guard_side_t side, const qy_guard_note_t *born, uint64_t tag,
    bool *ret_zero, uint32_t *ret_slot) {
    if (!qy_guard_base || qy_lock_is_mine(&guard.lock)) return NULL;
    qy_lock_take(&guard.lock);
    void *p = slot_alloc(align, n, side, born, tag, ret_slot);
    qy_lock_drop(&guard.lock);
    *ret_zero = p != NULL;
    return p;
}

// Also without the lock, as in handlers of faults: then a slot may be another block's meanwhile.
QY_UNSANITIZED static void tell_block(const qy_guard_slot_t *s, uint32_t number, qy_guard_block_t *ret) {
    *ret = (qy_guard_block_t){.address = s->address,
        .size = s->size,
        .born = s->born,
        .died = s->died,
        .tag = s->tag,
        .slot = number,
        .freed = atomic_load_explicit(&s->state, memory_order_acquire) != QY_SLOT_LIVE};
}

// Of a slot that is live.
static void slot_free(qy_guard_slot_t *s, const qy_guard_note_t *died) {
    QY_NEEDS(&guard.lock);
    uint32_t data = s->pages - 1;
    s->died = *died;
    atomic_store_explicit(&s->state, QY_SLOT_FREED, memory_order_release);
    guard.stats.live--;
    guard.stats.live_bytes -= data * guard.page;
    live_changed();
    bool closed = close_pages(s->first, data);
    // It was opened by qy_guard_open, and must be closed before the slot may be another's.
    if (closed && s->opened) closed = close_pages(s->first + data, 1);
    s->opened = false;
    if (closed) return;
    atomic_store_explicit(&s->state, QY_SLOT_STUCK, memory_order_release);
    guard.stats.stuck++;
}

qy_guard_answer_t qy_guard_free(void *p, const qy_guard_note_t *died, qy_guard_block_t *ret_block) {
    qy_guard_answer_t answer = QY_GUARD_INTERIOR;
    bool inside = qy_lock_is_mine(&guard.lock);
    if (!inside) qy_lock_take(&guard.lock);
    uint32_t number = qy_guard_owner(&guard.slots, page_of((uintptr_t)p));
    if (!qy_guard_find((uintptr_t)p, ret_block)) *ret_block = (qy_guard_block_t){0};
    if (number) {
        qy_guard_slot_t *s = qy_guard_slot(&guard.slots, number);
        uint32_t live = QY_SLOT_LIVE;
        if (s->address != (uintptr_t)p) answer = QY_GUARD_INTERIOR;
        // A signal handler that interrupted a call cannot do more: the slot is lost.
        else if (inside)
            answer = atomic_compare_exchange_strong(&s->state, &live, QY_SLOT_STUCK) ? QY_GUARD_DONE : QY_GUARD_FREED;
        else if (atomic_load_explicit(&s->state, memory_order_relaxed) != QY_SLOT_LIVE) answer = QY_GUARD_FREED;
        else {
            slot_free(s, died);
            answer = QY_GUARD_DONE;
        }
    }
    if (!inside) qy_lock_drop(&guard.lock);
    return answer;
}

// ---- questions ------------------------------------------------------------------------------------------------------

static uintptr_t slot_distance(const qy_guard_slot_t *s, uintptr_t address) {
    if (address < s->address) return s->address - address;
    return address - s->address < s->size ? 0 : address - s->address - s->size + 1;
}

bool qy_guard_find(uintptr_t address, qy_guard_block_t *ret) {
    if (!qy_guard_is_near((const void *)address)) return false;
    uint32_t page = page_of(address), number = qy_guard_owner(&guard.slots, page), best = number;
    const qy_guard_slot_t *s = number ? qy_guard_slot(&guard.slots, number) : NULL;
    // A page without access lies behind its own block, and before the next one.
    if (!s || page == s->first + s->pages - 1) {
        uint32_t next = page + 1 < guard.pages ? qy_guard_owner(&guard.slots, page + 1) : 0;
        const qy_guard_slot_t *n = next ? qy_guard_slot(&guard.slots, next) : NULL;
        if (n && (!s || slot_distance(n, address) < slot_distance(s, address))) {
            s = n;
            best = next;
        }
    }
    for (uint32_t i = 1; !s && i <= STRAY / guard.page; i++) {
        best = page > i ? qy_guard_owner(&guard.slots, page - i) : 0;
        if (!best && page + i < guard.pages) best = qy_guard_owner(&guard.slots, page + i);
        if (best) s = qy_guard_slot(&guard.slots, best);
    }
    if (s) tell_block(s, best, ret);
    return s != NULL;
}

const char *qy_guard_kind(const qy_guard_block_t *b, uintptr_t address, qy_guard_access_t access) {
    static const char words[3][3][24] = {
        {"use-after-free-read", "use-after-free-write", "use-after-free"},
        {"underflow-read", "underflow-write", "underflow"},
        {"overflow-read", "overflow-write", "overflow"},
    };
    if (b->freed) return words[0][access];
    return words[address < b->address ? 1 : 2][access];
}

QY_UNSANITIZED bool qy_guard_has(uintptr_t address, size_t n) {
    if (!qy_guard_is_near((const void *)address)) return false;
    uint32_t number = qy_guard_owner(&guard.slots, page_of(address));
    const qy_guard_slot_t *s = qy_guard_slot(&guard.slots, number);
    if (!number || atomic_load_explicit(&s->state, memory_order_acquire) != QY_SLOT_LIVE) return false;
    uintptr_t offset = address - s->address;
    bool inside = offset <= s->size && n <= s->size - offset;
    atomic_thread_fence(memory_order_acquire);
    return inside && atomic_load_explicit(&s->state, memory_order_relaxed) == QY_SLOT_LIVE;
}

bool qy_guard_open(uintptr_t address) {
    uint32_t page = page_of(address), number = qy_guard_owner(&guard.slots, page);
    if (number) qy_guard_slot(&guard.slots, number)->opened = true;
    else atomic_store(&guard.strayed, true);
    char *at = page_at(page);
    return guard.marks && page < guard.writable ? qy_os_unguard(at, guard.page) : qy_os_commit(at, guard.page);
}

QY_UNSANITIZED void qy_guard_each_live(bool (*visit)(const qy_guard_block_t *b, void *arg), void *arg) {
    for (uint32_t number = 1; number < guard.slots.used; number++) {
        const qy_guard_slot_t *s = qy_guard_slot(&guard.slots, number);
        if (atomic_load_explicit(&s->state, memory_order_acquire) != QY_SLOT_LIVE) continue;
        qy_guard_block_t b;
        tell_block(s, number, &b);
        if (!visit(&b, arg)) return;
    }
}

void qy_guard_get_stats(qy_guard_stats_t *ret) {
    bool within = qy_lock_is_mine(&guard.lock);  // a signal handler ends the process
    if (!within) qy_lock_take(&guard.lock);
    *ret = guard.stats;
    ret->slots = guard.slots.used - 1;
    if (!within) qy_lock_drop(&guard.lock);
}

void qy_guard_get_live(size_t *ret_blocks, size_t *ret_bytes) {
    *ret_blocks = atomic_load_explicit(&guard.live, memory_order_relaxed);
    *ret_bytes = atomic_load_explicit(&guard.live_bytes, memory_order_relaxed);
}
