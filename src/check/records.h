// SPDX-License-Identifier: MIT
// records.h: what is known of each block, found from its address in a few instructions.
//
// Records lie out of line, so that no overflow of a block reaches what is known of it. Each unit of 16 KiB that blocks
// begin in has a sheet: one record for each block that can begin there. Blocks of a class begin at the same addresses
// in whichever slab the unit is (sizeclass.h), so a sheet is good until the unit holds blocks of another class. A large
// object has one sheet with one record, which all its units lead to.
//
//   address -> table of 1 GiB -> entry of its unit -> sheet -> record
//
// Threads: look-ups take no lock and may be made in signal handlers, in a forked child and in a stopped process. A
// record changes its state by compare-and-swap of its word; of two threads that free a block one wins. While the state
// is BUSY the other fields are the winner's. A sheet that no record is in use of may be replaced, under a lock. So
// whoever begins to use a record first counts itself in `used`, and then looks whether the unit still has that sheet.
// Sheets are recycled and never unmapped. A look-up that meets one that is being replaced finds by its version that it
// did. What is read of a record afterwards holds if the place is still good then.
#ifndef QY_CHECK_RECORDS_H
#define QY_CHECK_RECORDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "check/alone.h"
#include "heap/types.h"

typedef enum qy_check_state {
    QY_CHECK_NONE,   // no block
    QY_CHECK_BUSY,   // a thread is changing it
    QY_CHECK_LIVE,   //
    QY_CHECK_FREED,  // in quarantine
    QY_CHECK_GONE,   // given back to the heap; who freed it is still known
} qy_check_state_t;

// The word: the size asked for, and what else is asked of every block.
#define QY_CHECK_SIZE ((UINT64_C(1) << 48) - 1)
#define QY_CHECK_STATE_SHIFT 48
#define QY_CHECK_FAMILY_SHIFT 52
#define QY_CHECK_ALIGN_SHIFT 56  // log2 of the alignment that operator new was given; 0: none
#define QY_CHECK_ALIGN_MASK 63u

typedef struct qy_check_record {
    _Atomic uint64_t word;
    uint32_t alloc_stack, free_stack;  // these and the rest: relaxed atomics, written in state BUSY
    uint32_t ordinal;                  // the how-manyeth block of its stack
    uint16_t alloc_thread, free_thread;
} qy_check_record_t;
_Static_assert(sizeof(qy_check_record_t) == 24, "what a block costs besides its zone");

typedef struct qy_check_sheet {
    // Constant while a unit has the sheet; written with the lock. A reader may meet them while they change: it looks at
    // the version before and after.
    _Atomic uintptr_t begin;       // of the first block
    _Atomic uint32_t size;         // bytes of each; 0: a large object
    _Atomic uint32_t reciprocal;   // 2^32 / size, rounded up
    _Atomic uint32_t count;        // of records; all sheets of one length in memory have room for those of each other
    _Atomic uint32_t cls;          // of the heap
    _Atomic size_t extent;         // bytes of a large object
    _Atomic uint32_t version;      // odd: no unit has it
    _Atomic uint32_t used;         // records that are neither NONE nor GONE; from REPLACED on: being replaced
    struct qy_check_sheet *spare;  // [lock] the next one that no unit has
    QY_ALIGNED(QY_CACHE_LINE)
    qy_check_record_t record[];
} qy_check_sheet_t;

QY_INLINE uint64_t qy_check_word(const qy_check_record_t *r) {
    return atomic_load_explicit(&r->word, memory_order_acquire);
}
QY_INLINE qy_check_state_t qy_check_state_of(uint64_t word) {
    return (qy_check_state_t)(word >> QY_CHECK_STATE_SHIFT & 15);
}
QY_INLINE uint64_t qy_check_with_state(uint64_t word, qy_check_state_t state) {
    return (word & ~(UINT64_C(15) << QY_CHECK_STATE_SHIFT)) | (uint64_t)state << QY_CHECK_STATE_SHIFT;
}

// ---- from an address to its sheet -----------------------------------------------------------------------------

#define QY_CHECK_LEAF_SHIFT 30
#define QY_CHECK_LEAF_UNITS ((size_t)1 << (QY_CHECK_LEAF_SHIFT - QY_UNIT_SHIFT))
#define QY_CHECK_LEAVES ((size_t)1 << (48 - QY_CHECK_LEAF_SHIFT))
typedef _Atomic(qy_check_sheet_t *) qy_check_entry_t;
extern QY_HIDDEN _Atomic(qy_check_entry_t *) qy_check_leaves[QY_CHECK_LEAVES];

QY_INLINE qy_check_entry_t *qy_check_entry(uintptr_t address) {
    if (QY_UNLIKELY(address >> 48)) return NULL;
    qy_check_entry_t *leaf =
        atomic_load_explicit(&qy_check_leaves[address >> QY_CHECK_LEAF_SHIFT], memory_order_acquire);
    return leaf ? &leaf[address >> QY_UNIT_SHIFT & (QY_CHECK_LEAF_UNITS - 1)] : NULL;
}
// The sheet of the unit that holds the address; NULL: no block of ours was ever there.
QY_INLINE qy_check_sheet_t *qy_check_sheet(uintptr_t address) {
    qy_check_entry_t *entry = qy_check_entry(address);
    return entry ? atomic_load_explicit(entry, memory_order_acquire) : NULL;
}

// A block's place: its record, and what the heap has given for it.
typedef struct qy_check_place {
    qy_check_sheet_t *sheet;
    qy_check_record_t *record;  // NULL: no block can be there
    uintptr_t begin;
    size_t room;       // bytes from its begin to the next one's
    uint32_t version;  // of the sheet
} qy_check_place_t;

// The place that holds the address, whatever its state.
qy_check_place_t qy_check_place(uintptr_t address);
// The same, in a few instructions, of a block whose own unit's sheet has it. record NULL: not known. A sheet that is
// replaced meanwhile has another version.
QY_INLINE qy_check_place_t qy_check_place_quickly(uintptr_t address) {
    qy_check_sheet_t *s = qy_check_sheet(address);
    if (QY_UNLIKELY(!s)) return (qy_check_place_t){0};
    uint32_t version = atomic_load_explicit(&s->version, memory_order_acquire);
    uintptr_t offset = address - atomic_load_explicit(&s->begin, memory_order_relaxed);
    uint64_t size = atomic_load_explicit(&s->size, memory_order_relaxed);
    uint64_t i = offset * atomic_load_explicit(&s->reciprocal, memory_order_relaxed) >> 32;
    // Of a large object the size is 0.
    bool has = offset < QY_UNIT && size && i < atomic_load_explicit(&s->count, memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    bool same = !(version & 1) && atomic_load_explicit(&s->version, memory_order_relaxed) == version;
    if (QY_UNLIKELY(!has || !same)) return (qy_check_place_t){0};
    return (qy_check_place_t){s, &s->record[i], address - (offset - i * size), size, version};
}
// The places before and behind it in memory; record NULL: not known.
qy_check_place_t qy_check_place_before(const qy_check_place_t *place);
qy_check_place_t qy_check_place_behind(const qy_check_place_t *place);
// Has the unit still that sheet?
QY_INLINE bool qy_check_place_is_good(const qy_check_place_t *place) {
    return !(place->version & 1) && place->sheet->version == place->version &&
           qy_check_sheet(place->begin) == place->sheet;
}

// For the block at p, which the caller has just had from the heap: counted as used. Record NULL: no memory.
qy_check_place_t qy_check_place_open(const void *p);
#define QY_CHECK_REPLACED (UINT32_C(3) << 30)  // threads count `used` up from it, and down again
// One more user of the sheet. False: it is being replaced.
QY_INLINE bool qy_check_sheet_use(qy_check_sheet_t *s, uintptr_t p) {
    if (QY_LIKELY(qy_check_count_up(&s->used, 1) < QY_CHECK_REPLACED) && qy_check_sheet(p) == s) return true;
    qy_check_count_up(&s->used, UINT32_MAX);
    return false;
}
// The same in a few instructions, where the block lies in one unit, whose sheet fits it. Record NULL: it does not.
QY_INLINE qy_check_place_t qy_check_place_open_quickly(const void *p, unsigned cls) {
    uintptr_t at = (uintptr_t)p;
    qy_check_sheet_t *s = qy_check_sheet(at);
    if (QY_UNLIKELY(!s)) return (qy_check_place_t){0};
    uintptr_t offset = at - atomic_load_explicit(&s->begin, memory_order_relaxed);
    uint64_t size = atomic_load_explicit(&s->size, memory_order_relaxed);
    bool fits = size && atomic_load_explicit(&s->cls, memory_order_relaxed) == cls && offset < QY_UNIT &&
                at % QY_UNIT + size <= QY_UNIT;
    if (QY_UNLIKELY(!fits || !qy_check_sheet_use(s, at))) return (qy_check_place_t){0};
    uint64_t i = offset * atomic_load_explicit(&s->reciprocal, memory_order_relaxed) >> 32;
    return (qy_check_place_t){s, &s->record[i], at, size, atomic_load_explicit(&s->version, memory_order_relaxed)};
}
// Its record is NONE or GONE from now on. Before the heap gets the block.
QY_INLINE void qy_check_place_close(const qy_check_place_t *place) {
    qy_check_count_up(&place->sheet->used, UINT32_MAX);
}

// Nothing is known of a large object's place any more, which is closed: others may have its addresses from now on.
void qy_check_place_forget(const qy_check_place_t *place);

// Calls visit for each record that is not NONE, until it says no. Takes no lock.
void qy_check_each_place(bool (*visit)(const qy_check_place_t *place, void *arg), void *arg);

qy_lock_t *qy_check_records_lock(void);  // for fork
// Are the counts what the records say? NULL, or what is wrong. While no other thread allocates.
const char *qy_check_records_wrong(void);

#endif
