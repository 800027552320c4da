// SPDX-License-Identifier: MIT
// pool.h: what every kind of pool is made of. START HERE for the pools.
//
// A kind is a file (or a few) with a structure whose first member is quarry_pool_t, a constant table of
// operations, and a create function:
//
//   qy_pool_new(ops, bytes, options)      the structure, zeroed, named, in the list   (core.c)
//   qy_pool_ready                         the kind has made the rest: others may ask the pool what they like
//   qy_chunk_get / qy_chunk_put           memory from the parent, limited, counted    (chunk.c)
//   qy_pool_retire                        the kind is about to take it apart: nobody asks any more
//   qy_pool_drop                          the structure goes; the kind has put its chunks back before
//
// Fast path and slow path. A kind's fast path compares with a limit (the end of a chunk, a count) and asks
// nothing else. When a pool is observed (mode != 0), the kind keeps that limit empty, so every call lands in the
// slow path, whose first lines are
//
//   if (QY_UNLIKELY(pool->mode & QY_MODE_OBSERVED)) return qy_observe_alloc(pool, group, size, alignment, flags);
//   if (QY_UNLIKELY(pool->mode & QY_MODE_COUNTED)) return counted_alloc(pool, size, alignment, flags);
//
// so that observing costs nothing when it is off. observe.h: canaries, poison for AddressSanitizer and
// valgrind, quarantine, pass-through. log.h: counting and the log. trace.h: what the recorder of traces is told; a
// recorded pool is counted too, so what is to be told stands in the branches that count.
//
// Locks, outermost first: `moving` (trace.c), then a kind's own lock, then the observer's, then the parent's (by
// chunk_get). The list of pools (core.c) is outside of all: its lock is held while figures are asked for
// (quarry_pools_walk) and around fork, where all are taken: list, then each pool's, children before parents, then that
// of the records (meta.c). Whoever holds another only tries it.
#ifndef QY_POOL_POOL_H
#define QY_POOL_POOL_H

#include <quarry/pool.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/compiler.h"
#include "base/list.h"
#include "rt/diag.h"
#include "rt/lock.h"

// Why calls of a pool take the slow path. Set at creation, constant afterwards.
#define QY_MODE_GUARD 0x1u      // observer: redzones with canaries
#define QY_MODE_ASAN 0x2u       // observer: redzones and free blocks poisoned
#define QY_MODE_VALGRIND 0x4u   // observer: blocks made known to memcheck
#define QY_MODE_PASS 0x8u       // observer: blocks come from malloc
#define QY_MODE_COUNTED 0x10u   // exact counters, and entries in the log
#define QY_MODE_RECORDED 0x20u  // the recorder is told; always together with COUNTED
#define QY_MODE_FENCE 0x40u     // observer: blocks before pages without access; always together with GUARD
#define QY_MODE_WATCHED 0x80u   // of a persistent pool: a checker is told of its blocks (persist_watch.c)
#define QY_MODE_POISONED (QY_MODE_ASAN | QY_MODE_VALGRIND)
#define QY_MODE_OBSERVED (QY_MODE_GUARD | QY_MODE_ASAN | QY_MODE_VALGRIND | QY_MODE_PASS)

#define QY_POOL_ALIVE 0x504F4F4Cu
#define QY_POOL_DYING 0x44594E47u  // destroyed by its owner, waiting for its last blocks (deferred destruction)
#define QY_POOL_DEAD 0xDEADF001u

#define QY_POOL_NAME_BYTES 32
#define QY_CHUNK_MIN ((size_t)64 * 1024)

// The cold part of a pool; lives beside the kind's structure, not in it.
typedef struct quarry_pool_info {
    char name[QY_POOL_NAME_BYTES];
    quarry_pool_t *parent;
    quarry_pool_t *pool;
    struct quarry_pool_info *next, **prev_next;  // list of all pools; core.c's lock
    unsigned flags;                              // QUARRY_POOL_*
    uint32_t object_bytes;                       // of the kind's structure
    uintptr_t owner;                             // qy_os_thread_token of the creator
    _Atomic size_t limit, held, peak_held;
    _Atomic size_t children;  // pools and chunks that depend on this one as parent
    // Written by whoever runs the pool's operations; atomic so that others may read them.
    _Atomic uint64_t requested, allocs, frees, resizes, slow_calls, chunk_gets, chunk_puts, slow_ns;
    struct qy_observer *observer;  // NULL unless QY_MODE_OBSERVED
    uint32_t checked;              // [const] its number with the checker (checker.h); 0: that is told nothing of blocks
    struct qy_log *log;            // NULL unless logged
    _Atomic uint64_t traced;       // trace.c: its number in the trace, and in which child of forks
    qy_lock_t moving;              // trace.c
    // stats_page.c: its entry + 1 (0: none, or `shown_on` is not the page there is), and what it has in the sum of
    // those without
    _Atomic uint32_t shown_at, shown_on;
    _Atomic size_t shown_held;
    _Atomic size_t walk_paid;  // qy_assert_walk
    _Atomic bool ready;        // walks see it; taken away with core.c's lock
    bool stats_lock;           // [const] ops->stats takes a lock that may be held where chunks come and go
} qy_pool_info_t;

// ---- life (core.c) ----------------------------------------------------------------------------------

// A zeroed structure of `bytes` (>= sizeof(quarry_pool_t)), cache-line aligned, its head filled in, in
// the list of pools. NULL and errno (ENOMEM). `options` may be NULL.
void *qy_pool_new(const quarry_pool_ops_t *ops, size_t bytes, const quarry_pool_options_t *options);
// It is whole: from now on walks see it.
void qy_pool_ready(quarry_pool_t *pool);
// Whoever looks at it has done so; from now on walks don't see it, but fork still does.
void qy_pool_retire(quarry_pool_t *pool);
// Take it out of the list and give the structure back. All chunks have been put back.
void qy_pool_drop(quarry_pool_t *pool);

// A fork handler of a lock that a walk holds, and is out (lock.h), while it calls the program's code. A fork does not
// wait for that code. To end, a walk takes `walk_ends` within `lock`, comes back, and drops `lock` first.
void qy_pool_fork_walked(qy_lock_t *lock, qy_lock_t *walk_ends, int phase);

// What a destroyed pool's operations are, as long as its record is not reused: each ends the process. (destroyed.c)
extern const quarry_pool_ops_t qy_destroyed_ops;

// Memory for pools' own records: pages of the kernel, cache-line aligned, zeroed, reused by size. (meta.c)
void *qy_pool_meta_alloc(size_t bytes);
void qy_pool_meta_free(void *object, size_t bytes);
// There is a checker (checker.h): it is told where records lie, now and later.
void qy_pool_meta_tell(void);
// Around fork. Its lock is taken under those of any pool, and is frozen after all of them. If malloc is a pool, which
// is in no list, that one's handlers come last and call this; else those of the list.
void qy_pool_meta_fork(int phase);
extern bool qy_pool_meta_fork_by_malloc;  // set by malloc, before another pool is made

// A mark against use of destroyed pools; for entry points off the fast path.
QY_INLINE void qy_pool_must_live(const quarry_pool_t *pool) {
    if (QY_UNLIKELY(pool->alive != QY_POOL_ALIVE))
        qy_fatal(QY_FAULT_DEAD_POOL, pool,
            pool->alive == QY_POOL_DYING ? "destroyed, and waiting for its last blocks" : NULL);
}

// What an operation returns that is refused memory: NULL with errno ENOMEM, or the end of the process
// for a QUARRY_POOL_ABORT pool.
QY_COLD void *qy_pool_no_memory(quarry_pool_t *pool, size_t size);
// NULL with errno EINVAL: an alignment that is no power of two or above the kind's largest.
QY_COLD void *qy_pool_bad_alignment(void);

// Is the request sane? (Sizes up to QUARRY_POOL_MAX, alignments up to the kind's.) If not, the kind
// returns what qy_pool_refuse returns.
QY_INLINE bool qy_pool_sane(const quarry_pool_t *pool, size_t size, size_t alignment) {
    return QY_LIKELY(
        size <= QUARRY_POOL_MAX && alignment - 1 < pool->ops->max_alignment && (alignment & (alignment - 1)) == 0);
}
QY_COLD void *qy_pool_refuse(quarry_pool_t *pool, size_t size, size_t alignment);

// ---- chunks (chunk.c) -----------------------------------------------------------------------------------

typedef struct qy_pool_chunk {
    void *base;
    size_t bytes;
    bool zero;  // known to be all zero
} qy_pool_chunk_t;

// Memory from the parent: at least `need` bytes, `want` if that can be had, at a multiple of `alignment`.
// Sizes from the kernel are multiples of the page size. False: refused by the parent or the pool's limit (errno is
// not set: the caller says qy_pool_no_memory). Thread-safe if the parent is (the kernel is).
bool qy_chunk_get(quarry_pool_t *pool, size_t need, size_t want, size_t alignment, qy_pool_chunk_t *ret_chunk);
// Make it one of at least `bytes`, here or elsewhere; what it holds comes along, by the kernel's tables if it is the
// kernel's. False: it is as it was.
bool qy_chunk_resize(quarry_pool_t *pool, qy_pool_chunk_t *chunk, size_t bytes, size_t alignment);
// Give it back, whole (of the kernel's also in pieces of whole pages).
void qy_chunk_put(quarry_pool_t *pool, void *base, size_t bytes);

// Its memory is no chunks but a file, of which it has `bytes` more by now: whoever looks at pools is told.
void qy_pool_grown(quarry_pool_t *pool, size_t bytes);

// For memory that does not come from the parent but is the pool's all the same (pass-through): charged to its limit.
bool qy_pool_charge(quarry_pool_t *pool, size_t bytes);
void qy_pool_discharge(quarry_pool_t *pool, size_t bytes);

// Name the pools that are left (report.c).
void qy_pools_report_left(void);

// ---- assertions (core.c) ----------------------------------------------------------------------------------

// Level 2: a walk over the whole structure of a pool behind a transition. `check` is NULL or what is wrong.
// A walk has about `steps` steps, and each transition pays for QY_WALK_PAID of them: the walk comes when it is paid.
// So a small pool is walked behind each transition, and a large one slows a test by a factor, not by its own size.
#define QY_WALK_PAID 32u
bool qy_pool_walk_is_due(quarry_pool_t *pool, size_t steps);
#define qy_assert_walk(pool, steps, check)                                                                       \
    ((QY_CFG_CHECK >= 2 && qy_pool_walk_is_due((pool), (steps))) ? qy_sound_must_be((check), __FILE__, __LINE__) \
                                                                 : (void)0)

// ---- counting (log.c) -------------------------------------------------------------------------------------

typedef enum qy_count {
    QY_COUNT_ALLOC,
    QY_COUNT_FREE,
    QY_COUNT_RESIZE,
    QY_COUNT_PUSH,  // frame push, newframe
    QY_COUNT_POP,   // frame pop, release
} qy_count_t;

// One cheap operation has been done, and not refused; every so many of them an entry goes to the log. Only with
// QY_MODE_COUNTED. `size`: bytes asked for, or 0.
QY_COLD void qy_count(quarry_pool_t *pool, qy_count_t what, size_t size);

// A counter with one writer at a time.
QY_INLINE void qy_bump(_Atomic uint64_t *counter, uint64_t n) {
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n, memory_order_relaxed);
}

#endif
