// SPDX-License-Identifier: MIT
// cache.h: the calling thread's cache (thread-local), and its record.
#ifndef QY_HEAP_CACHE_H
#define QY_HEAP_CACHE_H

#include "heap/link.h"
#include "heap/types.h"
#include "pages/map.h"
#include "heap/sizeclass.h"

// TLS has a pointer to the cache, not the cache: the place that ld.so keeps for libraries that come late (by dlopen,
// and with an auditor by LD_PRELOAD too) is 1,664 bytes for all of them together. A thread that has no heap, or none
// any more, has a cache that is empty for ever: nothing writes to it, since every path that would first asks for the
// thread's record.
extern QY_HIDDEN __thread qy_cache_t *qy_cache_tls;
#define QY_CACHE qy_cache_tls
extern QY_HIDDEN __thread volatile qy_thread_state_t qy_thread_state;

// The calling thread's record, attached to a heap; NULL when it has none and cannot have one now
// (being attached, dead, or no memory): use the shared heap, under its lock.
qy_thread_t *qy_thread_get(void);

// The calling thread, whose thread-local variables have no first values yet, may call malloc (api/dropin_early.c).
void qy_thread_early(void);

// Does it take blocks? Not before it has a heap, nor with tcache:off.
QY_INLINE bool qy_cache_is_on(const qy_cache_t *cache) { return (cache->key & QY_TAG_SLAB) != 0; }

// A class's list, NULL if it is empty.
QY_INLINE qy_block_t *qy_cache_list(const qy_cache_t *cache, size_t c) {
    return cache->head[c] == &qy_link_end ? NULL : cache->head[c];
}
QY_INLINE void qy_cache_set_list(qy_cache_t *cache, size_t c, qy_block_t *list) {
    cache->head[c] = list ? list : &qy_link_end;
}

// Use the heap's newest class table.
void qy_cache_refresh_classes(qy_thread_t *t);

// Bytes free in the calling thread's cache and pending groups.
size_t qy_cache_bytes(size_t *ret_blocks);

// Calls fn for each free block of the calling thread's cache and pending groups.
void qy_cache_each(void (*fn)(qy_block_t *b, void *arg), void *arg);

// All records ever made, in use or not; the list only grows.
qy_thread_t *qy_thread_first(void);

qy_lock_t *qy_thread_lock(void);  // for fork.c
bool qy_thread_is_moving(void);   // is the calling thread just getting or leaving a heap? for fork.c

// tcache was switched off after the calling thread was attached.
void qy_thread_options_changed(void);

// ---- how much caches keep --------------------------------------------------------------------------------
//
// The more threads there are, the less each keeps.
//
// Nobody but its thread can empty a cache, and a thread that sleeps does not. So a thread empties it while it works.
// A period is so many bytes into or out of its lists on the slow paths, and at least a part of its heap (moved.c). In
// each period every class has its turn: lists that were not filled or passed on since the last one go home, a few
// blocks in a call (qy_lists_sweep). What it sleeps on is what it worked with just before. Where there are many threads
// the period is shorter, and so are generations. Blocks of more than a generation are not cached then.

#define QY_BUDGET_BYTES ((size_t)16 << 20)       // all threads' periods together, ...
#define QY_BUDGET_PERIOD_MOST ((size_t)1 << 20)  // ... but each at most this, or a part of the heap, ...
#define QY_BUDGET_PERIOD_LEAST ((size_t)64 << 10)
#define QY_BUDGET_PART 8u  // generations in a period, where that is less than what generations are anyway

// What a thread gathers of other threads' blocks (remote.h) is of no use to anybody. Where threads are many more than
// processors, most of them wait with what they have gathered: so many for each processor, and each gathers less.
#define QY_BUDGET_CROWD 4u
#define QY_BUDGET_PEND_LEAST ((size_t)16 << 10)

extern QY_HIDDEN _Atomic uint32_t qy_budget_period_now, qy_budget_generation_now, qy_budget_pend_now;

// A thread has a cache now, or has none any more.
void qy_budget_enter(void);
void qy_budget_leave(void);
void qy_budget_after_fork(void);  // in the child: there is one thread

QY_INLINE uint32_t qy_budget_period(void) { return atomic_load_explicit(&qy_budget_period_now, memory_order_relaxed); }

// Bytes of blocks of other threads that a thread may gather.
QY_INLINE uint32_t qy_budget_pend(void) { return atomic_load_explicit(&qy_budget_pend_now, memory_order_relaxed); }

// Are generations shorter than qy_class_limit says?
QY_INLINE bool qy_budget_is_short(void) {
    return QY_UNLIKELY(atomic_load_explicit(&qy_budget_generation_now, memory_order_relaxed) < QY_GENERATION_MOST);
}

// Blocks in a generation of class c. 0: its blocks are not cached.
QY_INLINE unsigned qy_budget_limit(unsigned c) {
    if (!qy_budget_is_short()) return qy_class_limit[c];
    uint32_t bytes = atomic_load_explicit(&qy_budget_generation_now, memory_order_relaxed);
    return (unsigned)qy_min(qy_class_limit[c], bytes / qy_class_size[c]);
}

#endif
