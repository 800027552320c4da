// SPDX-License-Identifier: MIT
// unwind_test.h: our walk beside the compiler's own unwinder, which throws exceptions by the same tables.
#ifndef QUARRY_TESTS_UNWIND_TEST_H
#define QUARRY_TESTS_UNWIND_TEST_H

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unwind.h>

#include "harness.h"
#include "base/compiler.h"
#include "stacks/stacks.h"
#include "stacks/unwind.h"

#define FRAMES 4096

// What libgcc says.
typedef struct reference {
    uintptr_t pc[FRAMES];
    bool exact[FRAMES];
    unsigned n;
} reference_t;

static _Unwind_Reason_Code reference_add(struct _Unwind_Context *context, void *arg) {
    reference_t *r = arg;
    int exact = 0;
    uintptr_t pc = _Unwind_GetIPInfo(context, &exact);
    if (!pc || r->n == FRAMES) return _URC_END_OF_STACK;
    r->pc[r->n] = pc;
    r->exact[r->n++] = exact != 0;
    return _URC_NO_REASON;
}

// The stack from the frame with this pc on.
static __attribute__((unused, noinline)) void reference_take(reference_t *r, uintptr_t pc) {
    r->n = 0;
    _Unwind_Backtrace(reference_add, r);
    unsigned skip = 0;
    while (skip < r->n && r->pc[skip] != pc) skip++;
    r->n -= skip;
    memmove(r->pc, r->pc + skip, r->n * sizeof r->pc[0]);
    memmove(r->exact, r->exact + skip, r->n * sizeof r->exact[0]);
}

// A walker: what a thread needs for walks of its own.
typedef struct walker {
    qy_bounds_t bounds;
    qy_walk_t walk;
    uint8_t window[QY_WINDOW] __attribute__((aligned(16)));
} walker_t;

static __attribute__((unused)) qy_walk_t *walk(walker_t *w, const qy_stack_regs_t *from, bool cfi) {
    w->walk.bounds = &w->bounds;
    w->walk.window = w->window;
    if (cfi) qy_walk_cfi(&w->walk, from, NULL, 0, 0);
    else qy_walk_fp(&w->walk, from, NULL, 0, 0);
    return &w->walk;
}

static __attribute__((unused)) void print_stacks(const qy_walk_t *w, const reference_t *r) {
    for (unsigned i = 0; i < w->frames || i < r->n; i++)
        fprintf(stderr, "%3u  %#16lx  %#16lx%s\n", i, i < w->frames ? (unsigned long)w->frame[i].pc : 0ul,
            i < r->n ? (unsigned long)r->pc[i] : 0ul, i < r->n && r->exact[i] ? " exact" : "");
    fprintf(stderr, "end %d\n", w->end);
}

// How many of the frames are those of the reference; innermost first.
static __attribute__((unused)) unsigned same_frames(const qy_walk_t *w, const reference_t *r) {
    unsigned n = 0;
    while (n < w->frames && n < r->n && w->frame[n].pc == (r->pc[n] | (r->exact[n] ? QY_PC_EXACT : 0))) n++;
    return n;
}

#define CHECK_SAME_STACK(w, r)                                              \
    do {                                                                    \
        unsigned same_ = same_frames(w, r);                                 \
        unsigned want_ = (r)->n < QY_STACK_DEPTH ? (r)->n : QY_STACK_DEPTH; \
        if (same_ != want_ || (w)->frames != want_) {                       \
            print_stacks(w, r);                                             \
            TEST_FAIL("frame %u of %u is another", same_, want_);           \
        }                                                                   \
    } while (0)

#endif
