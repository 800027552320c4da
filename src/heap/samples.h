// SPDX-License-Identifier: MIT
// samples.h: the blocks that the sampler took: where they live, and what is known of them.
//
// The draw (draw.h) says that a request is to be sampled. A sampled block of up to 64 KiB is not taken from the
// thread's list, but from a heap that has nothing else: a first-class heap of the process. So its free is no fast
// one, by the test that is there anyway, and no other block's free is slower for it. There are few of these blocks,
// so one lock is enough, and they share slabs. A large object is sampled where it is: all its frees are slow.
//
// What is known lies in tables of fixed size, which quarry/stats_page.h describes; whoever may read the process's
// memory may read them at any time. Births and deaths are told one after the other, in a ring: who reads often enough
// misses none, and has a sampled trace. A table of the live ones says what a freed large object is. One lock is for
// both. What does not fit is counted, and nothing else: a block is then given out as if it had not been drawn.
//
// The probes otel_memory:alloc (address, bytes, bytes that it stands for) and otel_memory:free (address) are where a
// sample begins and ends, for tracers (base/probe.h). The names are those of a draft of OpenTelemetry.
//
// While the process guards some of the blocks that are drawn (guards.h), and nobody reads, nothing of this is told or
// needs memory.
//
// A child of a fork has none, and blocks that its parent sampled are as any others. Its sampler is on from the fork on
// if QUARRY_CONF says so, and else off until somebody switches it on.
#ifndef QY_HEAP_SAMPLES_H
#define QY_HEAP_SAMPLES_H

#include "heap/draw.h"
#include "heap/types.h"

// The heap of sampled blocks, or NULL: there was none yet.
extern QY_HIDDEN _Atomic(qy_heap_t *) qy_samples_heap;
// Live samples, which may be any blocks.
extern QY_HIDDEN _Atomic uint32_t qy_samples_live;

QY_INLINE bool qy_samples_are_in(const qy_heap_t *h) {
    return h == atomic_load_explicit(&qy_samples_heap, memory_order_relaxed);
}
// Need a large object that is freed, or a block that is resized, be looked up?
QY_INLINE bool qy_samples_any(void) {
    return QY_UNLIKELY(atomic_load_explicit(&qy_samples_live, memory_order_relaxed) != 0);
}

// All of these: no locks are held.

// A block for the caller: a guarded one, or one in the heap of samples. NULL: none is to be had, and the caller goes on
// as if this had not been drawn. *ret_fresh: as in qy_large_alloc.
void *qy_samples_take(size_t align, size_t n, unsigned rate, bool *ret_fresh);
// The same for n bytes that are on no list, if they are drawn: NULL if not.
void *qy_samples_take_at_once(size_t align, size_t n, bool *ret_fresh);
// A large object of n bytes begins, at p: it is drawn, and if so noted.
void qy_samples_large(const void *p, size_t n);

// p is about to be freed: if it was sampled, its life ends.
void qy_samples_end(const void *p);
// A large object at p may have been sampled, was resized to n bytes, and is at q now: as one that ended and one that
// began. (Blocks that stay where they are keep the size that they began with: of those that are not sampled nobody is
// told either.)
void qy_samples_resized(const void *p, const void *q, size_t n);

// The options have been read.
void qy_samples_begin(void);
qy_lock_t *qy_samples_lock(void);  // for fork.c
// In a child.
void qy_samples_after_fork(void);

#endif
