// SPDX-License-Identifier: MIT
// guards_report.c: see guards_report.h. Runs in handlers of signals, maybe on a small stack: the text is put together
// in memory of the process, which one thread has at a time.
#include "heap/guards_report.h"

#include <string.h>

#include "base/num.h"
#include "os/module.h"
#include "os/os.h"
#include "rt/diag.h"

#define NAME_BYTES 48
#define TELL_TRIES 400000  // about a second
#define TELL_PAUSES 64

static struct {
    qy_lock_t lock;
    char text[4096];  // [lock]
    size_t n;         // [lock]
} telling;

qy_lock_t *qy_guards_report_lock(void) { return &telling.lock; }

bool qy_guards_lock_soon(qy_lock_t *lock, unsigned tries) {
    for (unsigned i = 0; i < tries && !qy_lock_is_mine(lock) && !qy_lock_is_frozen(lock); i++) {
        if (qy_lock_try(lock)) return true;
        for (int j = 0; j < TELL_PAUSES; j++) qy_pause();
    }
    return false;
}

#define TELL(...) (telling.n += qy_format(telling.text + telling.n, sizeof telling.text - telling.n, __VA_ARGS__))

static void tell_frame(uintptr_t pc) {
    qy_os_module_t m;
    char name[NAME_BYTES];
    if (!qy_os_module_may_be_asked() || !qy_os_module_at(pc, &m)) {
        TELL(" %p", (void *)pc);
        return;
    }
    const char *slash = strrchr(m.path, '/');
    if (m.main) qy_os_program_name(name, sizeof name);
    else qy_format(name, sizeof name, "%s", slash ? slash + 1 : m.path);
    TELL(" %s+%p", name, (void *)(pc - m.base));
}

static void tell_stack(const char *what, uint32_t thread, const uintptr_t *pc, unsigned frames) {
    TELL("quarry: note: %s by thread %u at", what, thread);
    if (!frames) TELL(" an unknown place");
    for (unsigned i = 0; i < frames; i++) tell_frame(pc[i]);
    TELL("\n");
}

static void tell_row(const char *what, uint32_t thread, const qy_guards_stack_t *stack) {
    uintptr_t pc[QY_GUARDS_FRAMES];
    unsigned count = qy_min(atomic_load_explicit(&stack->count, memory_order_acquire), QY_GUARDS_FRAMES);
    for (unsigned i = 0; i < count; i++) pc[i] = atomic_load_explicit(&stack->pc[i], memory_order_relaxed);
    tell_stack(what, thread, pc, count);
}

// Where in relation to the block, of the size that was asked for.
static void tell_line(const qy_guards_fault_t *f) {
    const qy_guard_block_t *b = f->block;
    const char *place = "into", *freed = b->freed ? "freed " : "";
    uint64_t n = f->address - b->address;
    if (f->address < b->address) {
        place = "before";
        n = b->address - f->address;
    } else if (n >= b->tag) {
        place = "behind";
        n -= b->tag;
    }
    TELL("quarry: %s: %p, %l byte%S %s a %sblock of %l byte%S at %p\n", f->kind, (void *)f->address, n, place, freed,
        b->tag, (void *)b->address);
}

void qy_guards_tell(const qy_guards_fault_t *f, bool with_line) {
    if (!qy_guards_lock_soon(&telling.lock, TELL_TRIES)) return;
    telling.n = 0;
    const qy_guard_block_t *b = f->block;
    tell_stack(f->what, (uint32_t)qy_os_thread_id_known(), f->used, f->frames);
    if (f->row && b->freed) tell_row("freed", b->died.thread, &f->row->stack[QY_GUARDS_DIED]);
    if (f->row) tell_row("allocated", b->born.thread, &f->row->stack[QY_GUARDS_BORN]);
    if (with_line) tell_line(f);
    qy_os_write(2, telling.text, telling.n);
    qy_lock_drop(&telling.lock);
}
