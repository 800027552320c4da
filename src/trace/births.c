// SPDX-License-Identifier: MIT
// births.c: see births.h.
#include "trace/births.h"

#include "base/num.h"
#include "os/os.h"
#include "trace/record.h"

__thread uint32_t qy_birth_creator;

// With the lock, both.
static qy_birth_t *all, *idle;

static void more(void) {
    size_t page = qy_os_page_size();
    qy_birth_t *b = qy_os_map(page, page, NULL);
    for (size_t i = 0; b && i < page / sizeof *b; i++) {
        b[i].next = all;
        b[i].next_idle = idle;
        all = idle = &b[i];
    }
}

// The calling thread's number. One that has not allocated yet gets it now: pthread_create allocates.
static uint32_t number(void) {
    qy_writer_t *w = qy_record_mine;
    if (w == &qy_writer_new) w = qy_record_writer();
    if (!w || atomic_load_explicit(&w->attention, memory_order_relaxed) & (QY_ATTENTION_NOBODY | QY_ATTENTION_WRITING)) return 0;
    return atomic_load_explicit(w->live, memory_order_relaxed) ? w->thread : 0;
}

qy_birth_t *qy_birth_take(void) {
    uint32_t creator = number();
    if (!creator || qy_lock_is_mine(&qy_record.lock)) return NULL;
    qy_lock_take(&qy_record.lock);
    if (!idle) more();
    qy_birth_t *b = idle;
    if (b) idle = b->next_idle;
    qy_lock_drop(&qy_record.lock);
    if (b) b->creator = creator;
    return b;
}

void qy_birth_give(qy_birth_t *birth) {
    qy_lock_take(&qy_record.lock);
    birth->next_idle = idle;
    idle = birth;
    qy_lock_drop(&qy_record.lock);
}

void qy_birth_begin(qy_birth_t *birth) {
    qy_birth_creator = birth->creator;
    qy_birth_give(birth);
}

void qy_births_forget(void) {
    qy_birth_creator = 0;
    idle = NULL;
    for (qy_birth_t *b = all; b; b = b->next) {
        b->next_idle = idle;
        idle = b;
    }
}
