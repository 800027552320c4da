// SPDX-License-Identifier: MIT
// unwind_bounds.c: finding the own stack of a thread.
#include "stacks/unwind_bounds.h"

#include "os/os.h"

#define LARGEST (256u << 20)  // larger stacks are foreign from there on: proving them would take too long

// 0 if all pages from the one of `from` up to `top` can be read, else the end of one that cannot.
// First a few, doubling the distance: most foreign stacks are found out by the guard at their end.
static uintptr_t unreadable(uintptr_t from, uintptr_t top, uintptr_t page) {
    from &= ~(page - 1);
    for (uintptr_t step = page; step < top - from; step *= 2)
        if (!qy_os_readable((const void *)(from + step))) return from + step + page;
    for (uintptr_t at = from; at < top; at += page)
        if (!qy_os_readable((const void *)at)) return at + page;
    return 0;
}

// How far sp is from `top`, if that may be the end of its stack.
static bool near(uintptr_t sp, uintptr_t top) { return sp < top && top - sp <= LARGEST; }

static void note_foreign(qy_bounds_t *b, uintptr_t lo, uintptr_t hi) {
    unsigned i = b->next++ % QY_BOUNDS_FOREIGN;
    b->foreign[i].lo = lo;
    b->foreign[i].hi = hi;
}

QY_COLD bool qy_bounds_cover(qy_bounds_t *b, uintptr_t sp) {
    if (qy_bounds_has(b, sp)) return true;
    for (int i = 0; i < QY_BOUNDS_FOREIGN; i++)
        if (sp - b->foreign[i].lo < b->foreign[i].hi - b->foreign[i].lo) return false;
    uintptr_t page = qy_os_page_size(), lo = sp & ~(page - 1), bad = 0;
    if (b->hi) {  // known: sp is further down on it, or elsewhere
        if (sp >= b->hi || b->hi - sp > LARGEST) return false;
        bad = unreadable(sp, b->lo, page);
        if (!bad) b->lo = lo;
    } else {
        uintptr_t tops[2] = {qy_os_main_stack_top(), qy_os_thread_token() & ~(uintptr_t)7};
        bool tried = false;
        for (int i = 0; i < 2; i++) {
            if (!near(sp, tops[i])) continue;
            tried = true;
            bad = unreadable(sp, tops[i], page);
            if (bad) continue;
            b->lo = lo;
            b->hi = tops[i];
            return true;
        }
        if (!tried) return false;
    }
    if (bad) note_foreign(b, lo, bad);
    return !bad;
}
