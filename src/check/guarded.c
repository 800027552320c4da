// SPDX-License-Identifier: MIT
// guarded.c: see guarded.h.
#include "check/guarded.h"

#include "os/faults.h"
#include "os/os.h"

qy_check_block_t qy_check_guarded_block(const qy_guard_block_t *g) {
    return (qy_check_block_t){.address = g->address,
        .size = g->size,
        .alloc_stack = g->born.stack,
        .free_stack = g->freed ? g->died.stack : 0,
        .alloc_thread = g->born.thread,
        .free_thread = g->freed ? g->died.thread : 0,
        .ordinal = g->tag >> 16,
        .family = (qy_check_family_t)(g->tag & 255),
        .freed = g->freed};
}

bool qy_check_guarded_find(uintptr_t address, qy_check_block_t *ret) {
    qy_guard_block_t g;
    if (!qy_guard_find(address, &g)) return false;
    *ret = qy_check_guarded_block(&g);
    return true;
}

typedef struct guarded_each {
    bool (*visit)(const qy_check_block_t *b, void *arg);
    void *arg;
} guarded_each_t;

static bool guarded_visit(const qy_guard_block_t *g, void *arg) {
    guarded_each_t *each = arg;
    qy_check_block_t b = qy_check_guarded_block(g);
    return each->visit(&b, each->arg);
}

void qy_check_guarded_each_live(bool (*visit)(const qy_check_block_t *b, void *arg), void *arg) {
    guarded_each_t each = {visit, arg};
    qy_guard_each_live(guarded_visit, &each);
}

// ---- accesses -------------------------------------------------------------------------------------------------------

static void guarded_report(const qy_check_block_t *b, uintptr_t at, size_t n, bool is_write, const char *function,
    const qy_stack_regs_t *from) {
    qy_guard_block_t g = {.address = b->address, .size = b->size, .freed = b->freed};
    qy_check_fault_t f = {.kind = qy_guard_kind(&g, at, is_write ? QY_GUARD_WRITE : QY_GUARD_READ),
        .function = function,
        .address = at,
        .is_write = is_write,
        .bytes = n,
        .has_block = true,
        .block = *b,
        .offset = (int64_t)(at - b->address)};
    qy_check_report(&f, from);
}

void qy_check_guarded_access(uintptr_t at, size_t n, bool is_write, const char *function) {
    qy_check_block_t b;
    if (qy_guard_has(at, n) || !qy_check_guarded_find(at, &b)) return;
    guarded_report(&b, at, n, is_write, function, NULL);
    // The function does it now, and is not to be told of once more.
    size_t page = qy_os_page_size();
    for (uintptr_t open = at & -page; open < at + n && qy_guard_is_near((void *)open); open += page)
        if (!qy_os_readable((void *)open)) qy_guard_open(open);
}

// A fault in a block that is live means that another thread was here before, and the page is accessible by now.
static bool guarded_fault(const qy_os_fault_t *f) {
    qy_check_block_t b;
    if (!qy_check_guarded_find(f->address, &b)) return false;
    qy_stack_regs_t from = {.pc = f->pc, .sp = f->sp, .fp = f->fp, .exact = true};
    // How many bytes the instruction accesses is not known.
    if (b.freed || f->address - b.address >= b.size) guarded_report(&b, f->address, 0, f->is_write, NULL, &from);
    return qy_guard_open(f->address);
}

bool qy_check_guarded_begin(void) { return qy_os_faults_begin(guarded_fault); }
