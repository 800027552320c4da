// SPDX-License-Identifier: MIT
// stacks_thread.h: what a thread has for its captures.
#ifndef QY_STACKS_STACKS_THREAD_H
#define QY_STACKS_STACKS_THREAD_H

#include <stdatomic.h>

#include "stacks/stacks_tree.h"
#include "stacks/unwind.h"

typedef enum qy_stack_count {
    QY_STACK_CAPTURES,
    QY_STACK_REENTERED,
    QY_STACK_FULL,
    QY_STACK_FAILED,
    QY_STACK_DEEP,
    QY_STACK_CUT,
    QY_STACK_JOINED,
    QY_STACK_FRAMES,
    QY_STACK_FOREIGN,
    QY_STACK_COUNTS
} qy_stack_count_t;

// A walk that began on the own stack, and the words it read: with the same registers, and the same words in the same
// places, it would be the same again.
#define QY_RECALL_WALKS 64u
#define QY_RECALL_WORDS 96u
#define QY_RECALL_AT_ONCE 4u  // words that are compared before it is asked whether they were the same
typedef struct qy_recall {
    uintptr_t pc, sp, fp, fp_mask;  // sp 0: there is none. The mask: does fp count?
    uint32_t id, words;             // a multiple of QY_RECALL_AT_ONCE
} qy_recall_t;

// Never unmapped: an idle one serves the next thread. `owned`, `next`, `cut` and `room` may be read by any thread, the
// counters too; all else is the owner's.
typedef struct qy_stack_thread {
    struct qy_stack_thread *next;  // of all there ever were; constant
    _Atomic uint32_t cut;          // of the first one of an area: so many others were cut from it, at least,
    uint32_t room;                 // and so many it has room for; constant
    _Atomic bool owned;
    _Atomic bool busy;           // a capture is going on: whoever finds it set has interrupted it
    uint32_t spare;              // an id that was taken and never told
    uint32_t epoch, generation;  // of the tree and the rules that `trail` and `spare` come from
    _Atomic uint64_t counts[QY_STACK_COUNTS];
    qy_bounds_t bounds;
    qy_trail_t trail;
    qy_walk_t walk;
    uint32_t walks;  // that could have been one of these
    qy_recall_t recall[QY_RECALL_WALKS];
    // By walk, and apart from it: who has no walk to recall touches none of these 24 pages.
    qy_word_t recalled[QY_RECALL_WALKS][QY_RECALL_WORDS];
    uint8_t window[QY_WINDOW] QY_ALIGNED(16);
} qy_stack_thread_t;

// The calling thread's, if it has one by now. Only its own thread looks at it, and signal handlers on that thread:
// atomic because of these.
extern QY_HIDDEN _Thread_local _Atomic(qy_stack_thread_t *) qy_stack_thread_self;
// The calling thread's; NULL if there is no memory. Safe in signal handlers.
qy_stack_thread_t *qy_stack_thread(void);
// It goes to the idle ones.
void qy_stack_thread_release(void);
// In the child of a fork: the other threads are gone.
void qy_stack_threads_restart(void);
// The sum of a counter over all threads.
uint64_t qy_stack_threads_sum(qy_stack_count_t count);
uint64_t qy_stack_threads_memory(void);

QY_INLINE void qy_stack_count(qy_stack_thread_t *t, qy_stack_count_t count, uint64_t n) {
    uint64_t before = atomic_load_explicit(&t->counts[count], memory_order_relaxed);
    atomic_store_explicit(&t->counts[count], before + n, memory_order_relaxed);
}

#endif
