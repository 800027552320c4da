// SPDX-License-Identifier: MIT
// slots.h: what is known of guarded blocks, and which page is whose.
//
// Written under the arena's lock. Handlers of faults read without: a slot's state is written last when it begins.
#ifndef QY_GUARD_SLOTS_H
#define QY_GUARD_SLOTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

// What a caller wants to be known of a block: by whom it was made, or freed.
typedef struct qy_guard_note {
    uint32_t stack, thread;
} qy_guard_note_t;

typedef enum qy_guard_slot_state {
    QY_SLOT_UNUSED,
    QY_SLOT_LIVE,
    QY_SLOT_FREED,
    QY_SLOT_STUCK,  // freed, and its guard was refused: never used again
} qy_guard_slot_state_t;

typedef struct qy_guard_slot {
    uintptr_t address;
    size_t size;
    qy_guard_note_t born, died;
    uint64_t tag;
    uint32_t first, pages;  // the last of them has no access
    _Atomic uint32_t state;
    bool opened;  // a page of it was opened after a fault
} qy_guard_slot_t;

typedef struct qy_guard_slots {
    _Atomic uint32_t *owner;  // of each page
    qy_guard_slot_t *slot;    // number 0 is none
    uint32_t limit;           // numbers
    uint32_t used, hand;      // numbers that were used at least once; the last that was given out
} qy_guard_slots_t;

bool qy_guard_slots_start(qy_guard_slots_t *t, uint32_t pages, uint32_t slots);
// The number of one without pages; 0: all are live. One that was freed long ago is forgotten where no other is left.
uint32_t qy_guard_slot_new(qy_guard_slots_t *t);
// It is forgotten, and its pages are nobody's.
void qy_guard_slot_delete(qy_guard_slots_t *t, uint32_t number);

QY_INLINE qy_guard_slot_t *qy_guard_slot(const qy_guard_slots_t *t, uint32_t number) { return &t->slot[number]; }
QY_INLINE uint32_t qy_guard_owner(const qy_guard_slots_t *t, uint32_t page) {
    return atomic_load_explicit(&t->owner[page], memory_order_acquire);
}
QY_INLINE void qy_guard_own(qy_guard_slots_t *t, uint32_t page, uint32_t number) {
    atomic_store_explicit(&t->owner[page], number, memory_order_release);
}

#endif
