// SPDX-License-Identifier: MIT
// births.c: see births.h.
#include "trace/births.h"

#include "base/num.h"
#include "os/os.h"
#include "trace/recording.h"

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

qy_birth_t *qy_birth_take(uint32_t creator) {
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
