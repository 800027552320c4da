// SPDX-License-Identifier: MIT
// innermost.c: see innermost.h.
#include "stacks/innermost.h"

#include "os/module.h"
#include "rt/diag.h"
#include "stacks/stacks.h"

bool qy_innermost_start(qy_innermost_t *s) {
    if (s->started) return true;
    s->started = qy_os_module_may_be_asked() && qy_rules_few_start(&s->few);
    return s->started;
}

void qy_innermost_forget(qy_innermost_t *s) { qy_rules_few_forget(&s->few); }

unsigned qy_innermost_frames(
    qy_innermost_t *s, qy_bounds_t *bounds, const qy_stack_regs_t *from, uintptr_t *ret_pc, unsigned most) {
    if (!s->started) return 0;
    qy_assert(most <= QY_STACK_DEPTH);
    uintptr_t own_bytes, own = qy_stacks_own(&own_bytes);
    qy_walk_t *w = &s->walk;
    w->bounds = bounds;
    w->window = s->window;
    w->few = &s->few;
    w->frames_most = most;
#if defined(__x86_64__)
    qy_walk_cfi(w, from, NULL, own, own_bytes);
#else
    qy_walk_fp(w, from, NULL, own, own_bytes);
#endif
    for (uint32_t i = 0; i < w->frames; i++) {
        uintptr_t pc = w->frame[i].pc;
        ret_pc[i] = pc & QY_PC_EXACT ? pc & ~QY_PC_EXACT : pc - 1;
    }
    return w->frames;
}
