// SPDX-License-Identifier: MIT
// learn.c: see learn.h.
#include "heap/learn.h"

#include "heap/sizeclass.h"
#include "pages/chunk.h"
#include "rt/heuristics.h"

#define WORTH ((size_t)256 << 10)  // bytes of slabs that a class must have,
#define PART 32u                   // part of a block that must be saved,
#define REQUESTS 8u                // and requests of the step beyond the others

static unsigned learned;  // [lock: pages] so many there are

void qy_learn_asked(qy_heap_t *h, unsigned c, size_t n) {
    QY_NEEDS(&h->lock);
    if (c - QY_ASKED_FIRST >= QY_ASKED_COUNT) return;
    // Who has more than half of the requests remains, without counting each.
    qy_asked_t *a = &h->asked[c - QY_ASKED_FIRST];
    unsigned step = qy_step(qy_round_up(n, QY_ALIGN_MIN));  // of 8 bytes up to 2 KiB, which no block can end with
    if (a->step == step) a->more += a->more < UINT16_MAX;
    else if (a->more) a->more--;
    else *a = (qy_asked_t){.step = (uint16_t)step, .more = 1};
}

// The class of this size: one that is there, or a new one. 0: there is no number left.
static unsigned class_of(uint32_t size) {
    qy_lock_take(qy_units_lock());
    unsigned c = QY_CLASS_LEARNED, end = QY_CLASS_LEARNED + learned;
    while (c < end && qy_class_size[c] != size) c++;
    if (c == end) {
        if (learned < QY_LEARNED_COUNT) {
            qy_class_size[c] = size;
            qy_class_magic[c] = (uint32_t)((UINT64_C(0x100000000) + size - 1) / size);
            qy_class_limit[c] = (uint8_t)qy_max(1, qy_min(32768 / size, 16));
            learned++;
        } else {
            c = 0;
        }
    }
    qy_lock_drop(qy_units_lock());
    return c;
}

// The heap has a class of its own for the step from now on. Some times in the life of a process: apart from what each
// slab asks (rare.ld).
QY_COLD static void learn(qy_heap_t *h, unsigned c, qy_asked_t *a) {
    unsigned own = class_of((uint32_t)qy_step_size(a->step));
    if (!own) return;
    for (unsigned i = a->step; i && h->cls[i] == c; i--) h->cls[i] = (uint8_t)own;
    h->learned |= (uint16_t)(1u << (own - QY_CLASS_LEARNED));
    *a = (qy_asked_t){0};
    atomic_fetch_add_explicit(&h->cls_version, 1, memory_order_release);
}

void qy_learn(qy_heap_t *h, unsigned c) {
    QY_NEEDS(&h->lock);
    if (!QY_WITH(learn) || c - QY_ASKED_FIRST >= QY_ASKED_COUNT) return;
    qy_asked_t *a = &h->asked[c - QY_ASKED_FIRST];
    if (a->more < REQUESTS || h->cls[a->step] != c || qy_class_slabs_bytes(c, h->bins[c].nslabs) < WORTH) return;
    if (qy_class_size[c] - qy_step_size(a->step) >= qy_class_size[c] / PART) learn(h, c, a);
}
