// SPDX-License-Identifier: MIT
// slots.c: see slots.h.
#include "guard/slots.h"

#include "base/num.h"
#include "os/guard.h"
#include "os/os.h"
#include "stacks/own.h"

// Memory that is used as far as it is needed.
static void *slots_table(size_t bytes) {
    bytes = qy_round_up(bytes, qy_os_page_size());
    void *t = qy_os_reserve_uncharged(bytes);
    if (!t) return NULL;
    if (!qy_os_commit(t, bytes)) {
        qy_os_unmap(t, bytes);
        return NULL;
    }
    qy_own_add(t, bytes);
    return t;
}

bool qy_guard_slots_start(qy_guard_slots_t *t, uint32_t pages, uint32_t slots) {
    *t = (qy_guard_slots_t){.limit = slots + 1, .used = 1};
    t->owner = slots_table(pages * sizeof *t->owner);
    t->slot = t->owner ? slots_table(t->limit * sizeof *t->slot) : NULL;
    if (t->owner && !t->slot) {
        qy_own_remove((void *)t->owner);
        qy_os_unmap((void *)t->owner, qy_round_up(pages * sizeof *t->owner, qy_os_page_size()));
    }
    return t->slot != NULL;
}

uint32_t qy_guard_slot_new(qy_guard_slots_t *t) {
    for (uint32_t tries = 1; tries < t->limit; tries++) {
        uint32_t number = t->hand = t->hand + 1 < t->limit ? t->hand + 1 : 1;
        qy_guard_slot_t *s = &t->slot[number];
        uint32_t state = atomic_load_explicit(&s->state, memory_order_relaxed);
        if (state == QY_SLOT_LIVE || state == QY_SLOT_STUCK || (state == QY_SLOT_FREED && s->opened)) continue;
        if (state == QY_SLOT_FREED) qy_guard_slot_delete(t, number);
        if (number >= t->used) t->used = number + 1;
        return number;
    }
    return 0;
}

void qy_guard_slot_delete(qy_guard_slots_t *t, uint32_t number) {
    qy_guard_slot_t *s = &t->slot[number];
    for (uint32_t i = s->first; i < s->first + s->pages; i++) qy_guard_own(t, i, 0);
    atomic_store_explicit(&s->state, QY_SLOT_UNUSED, memory_order_relaxed);
    s->pages = 0;
    s->opened = false;
}
