// SPDX-License-Identifier: MIT
// large.c: see large.h.
#include "heap/large.h"

#include "heap/clear.h"
#include "heap/guards.h"
#include "heap/huge.h"
#include "heap/run.h"
#include "rt/heuristics.h"

// A mapping costs nothing until it is touched, and all of that again the next time. So a program that has freed one has
// runs instead, whose pages stay for a while. The descriptors of their chunks are 0.06 % of them: not of what is never
// touched, however large.
#define LONG_LIVE ((size_t)4 << 30)
static bool may_be_long(size_t n) {
    if (n <= QY_LONG_USUAL) return true;
    return n <= QY_LONG_MAX && QY_WITH(touched) && qy_huge_comes_again() && qy_run_mapped() <= LONG_LIVE - n;
}

static void *large_alloc(qy_heap_t *h, size_t align, size_t n, bool *ret_fresh) {
    // A long run begins on a chunk boundary. Zeros are better had from the kernel, where calloc's callers do not touch
    // most of them: what is never touched then costs nothing.
    bool may = may_be_long(n) && align <= QY_CHUNK, zeros = *ret_fresh && n > QY_RUN_MAX;
    void *p = may && (!zeros || qy_clear_pays(n)) ? qy_run_alloc(h, align, n, ret_fresh) : NULL;
    if (p) return p;
    // No chunk is to be had, perhaps, but a mapping of just its size: little is left of a limit.
    if ((p = qy_huge_alloc(h, align, n, zeros))) *ret_fresh = true;
    // The kernel has no mapping of its own for it (too many, or no address space), but there may be room among others.
    else if (may && zeros && !qy_clear_pays(n)) p = qy_run_alloc(h, align, n, ret_fresh);
    return p;
}

void *qy_large_alloc(qy_heap_t *h, size_t align, size_t n, bool *ret_fresh) {
    if (h && h->kind != QY_HEAP_FIRST_CLASS) h = NULL;
    void *p = large_alloc(h, align, n, ret_fresh);
    // A slab may have been here, and left the mark of a free block. realloc copies what the caller never wrote, so the
    // mark could come back, in a live block, to the address it was made for: a free of that block would look like a
    // second one.
    if (p && !*ret_fresh) ((qy_block_t *)p)->link = 0;
    return p;
}

void qy_large_stats(qy_large_stats_t *ret) {
    qy_run_stats(&ret->runs, &ret->run_live, &ret->run_slack);
    qy_huge_stats(&ret->huges, &ret->huge_live, &ret->huge_stuck);
    size_t guarded, bytes;
    qy_guards_live(&guarded, &bytes);
    ret->huges += guarded;
    ret->huge_live += bytes;
}
