// SPDX-License-Identifier: MIT
// node.h: the observer's register: one node per block, found by address, in order of age, and the
// quarantine of those that have ended.
//
// Addresses in nodes are stored inverted, so that leak checkers, which scan memory for pointers, see
// only those of the program. Nodes come from slabs of the observer, which go with it.
//
// A block is in the table from its beginning to the end of its quarantine, so an ended one is never taken for an
// unknown one, whatever other threads do meanwhile:
//
//   add -> live -> take or take_groups -> on no list -> quarantine -> evicted: out of the table -> spared
//                                                   \-> forget: out of the table, and spared
#ifndef QY_POOL_NODE_H
#define QY_POOL_NODE_H

#include "base/num.h"
#include "pool/filling.h"
#include "pool/pool.h"

#define QY_REDZONE ((size_t)16)
#define QY_CANARY_BYTE 0xB7
#define QY_RAW_BYTE 0xD5   // new, not zeroed
#define QY_DEAD_BYTE 0xDD  // ended

// What a pool's quarantine keeps: memory of blocks with their zones, and nodes. A fenced block counts as its size, or
// as QY_QUARANTINE_FENCED if that is more, since the kernel has mappings for it.
#define QY_QUARANTINE_BYTES ((size_t)1 << 20)
#define QY_QUARANTINE_FENCED ((size_t)1 << 10)
// When it is full so much leaves at once: looking at many costs less than looking at one each time.
#define QY_QUARANTINE_LEAVES ((size_t)1 << 15)

typedef struct qy_block_node {
    struct qy_block_node *same_bucket;
    struct qy_block_node *newer, *older;  // of the same list: live, or quarantine
    uintptr_t ptr, raw;                   // inverted
    size_t size, alignment, raw_bytes;
    uint64_t group;
    uint32_t born, died;  // the stacks of its allocation and its end (origin.h)
    bool freed;           // it has ended
    bool fenced;          // its memory is that of fence.h
} qy_block_node_t;

typedef enum qy_what {
    QY_IS_NOTHING,
    QY_IS_BLOCK,   // the start of a live block
    QY_IS_INSIDE,  // within a live block
    QY_WAS_FREED,  // the start of one that has ended
} qy_what_t;

static inline uintptr_t qy_hide_pointer(const void *p) { return ~(uintptr_t)p; }
static inline void *qy_shown_pointer(uintptr_t hidden) { return (void *)~hidden; }

void qy_node_print_traces(const qy_block_node_t *node);  // where it was allocated, where freed, on stderr

struct qy_observer *qy_observer_new(void);
void qy_observer_delete(struct qy_observer *o);  // empty by now
void qy_observer_fork(struct qy_observer *o, int phase);

// A copy of `node` is live. False: no memory for it. Groups never become smaller from one block to the next.
bool qy_observer_add(struct qy_observer *o, const qy_block_node_t *node);
// The block at ptr has ended, and is the caller's; NULL: none is live there. `replaced`: by one that was added before,
// in a resize.
qy_block_node_t *qy_observer_take(struct qy_observer *o, const void *ptr, bool replaced);
// All of the groups have ended, chained by `older`, the newest first.
qy_block_node_t *qy_observer_take_groups(struct qy_observer *o, uint64_t first, uint64_t last);
// Into quarantine: the chain, of which the last becomes the newest. Returned, chained by `older`: those it has no room
// for any more.
qy_block_node_t *qy_observer_quarantine(struct qy_observer *o, qy_block_node_t *chain);
qy_block_node_t *qy_observer_release_quarantine(struct qy_observer *o);
// Out of quarantine: all with memory in [from, to).
qy_block_node_t *qy_observer_within(struct qy_observer *o, uintptr_t from, uintptr_t to);
// Nodes that are in the table, or out of it, of which nobody knows any more.
void qy_observer_forget(struct qy_observer *o, qy_block_node_t *chain);
void qy_observer_spare(struct qy_observer *o, qy_block_node_t *chain);

qy_what_t qy_observer_explain(struct qy_observer *o, const void *ptr, qy_block_node_t *ret_copy);
uint64_t qy_observer_live(struct qy_observer *o);  // blocks
// Of blocks and operations. A block that a frame ends is a free here, too.
void qy_observer_stats(struct qy_observer *o, quarry_pool_stats_t *stats);
bool qy_observer_all(struct qy_observer *o, bool (*holds)(const qy_block_node_t *node, void *arg), void *arg);

// ---- inside -------------------------------------------------------------------------------------------------
// The table by address, and two lists by age: for node.c, and for what a guarded pool does with each block
// (observe_guard.c, reused.h), which has the lock once for all steps.

typedef struct qy_node_age {
    qy_block_node_t *newest, *oldest;
} qy_node_age_t;

// Counts of blocks only grow. Two counts that one step adds to are not neighbours: compilers add to such at once, by
// nine instructions.
struct qy_observer {
    qy_lock_t lock;  // of everything here
    qy_block_node_t **table;
    uint64_t ended;        // blocks, ever
    size_t buckets;        // a power of two
    uint64_t ended_bytes;  // that these had
    qy_node_age_t live;
    uint64_t begun;  // blocks, ever
    qy_node_age_t quarantine;
    uint64_t requested;       // bytes of blocks that began, ever
    qy_block_node_t *spares;  // chained by `older`
    size_t waiting;           // bytes in quarantine, as qy_node_ended_bytes counts
    struct qy_node_slab *slabs;
    uint64_t left;     // blocks that are in the table no more, ever
    uint64_t resized;  // blocks that began in place of another, which has ended
};

// What it counts as in quarantine.
QY_INLINE size_t qy_node_ended_bytes(const qy_block_node_t *n) {
    return QY_UNLIKELY(n->fenced) ? qy_max(n->size, QY_QUARANTINE_FENCED) : n->raw_bytes + sizeof *n;
}

// ---- lists ------------------------------------------------------------------------------------------------

QY_INLINE void qy_node_push(qy_node_age_t *a, qy_block_node_t *n) {
    n->newer = NULL;
    n->older = a->newest;
    *(n->older ? &n->older->newer : &a->oldest) = n;
    a->newest = n;
}

QY_INLINE void qy_node_remove(qy_node_age_t *a, const qy_block_node_t *n) {
    *(n->newer ? &n->newer->older : &a->newest) = n->older;
    *(n->older ? &n->older->newer : &a->oldest) = n->newer;
}

QY_INLINE void qy_live_push(struct qy_observer *o, qy_block_node_t *n, size_t size) {
    qy_node_push(&o->live, n);
    o->begun++;
    o->requested += size;
}

QY_INLINE void qy_live_remove(struct qy_observer *o, const qy_block_node_t *n) {
    qy_assert(o->begun > o->ended && o->requested - o->ended_bytes >= n->size);
    qy_node_remove(&o->live, n);
    o->ended++;
    o->ended_bytes += n->size;
}

QY_INLINE void qy_quarantine_push(struct qy_observer *o, qy_block_node_t *n, size_t bytes) {
    qy_node_push(&o->quarantine, n);
    o->waiting += bytes;
}

// Blocks of a group lie side by side in the list. It is searched from the end that is nearer: frames of a stack end at
// the newest, those of a ring mostly at the oldest. The block may be of none of the groups: the first one that the
// caller comes to is then not, either.
qy_block_node_t *qy_node_search(struct qy_observer *o, uint64_t first, uint64_t last);
QY_INLINE qy_block_node_t *qy_node_newest_of(struct qy_observer *o, uint64_t first, uint64_t last) {
    QY_NEEDS(&o->lock);
    qy_block_node_t *n = o->live.newest;
    return QY_LIKELY(!n || n->group <= last) ? n : qy_node_search(o, first, last);
}

// ---- the table --------------------------------------------------------------------------------------------

QY_INLINE qy_block_node_t **qy_node_bucket(struct qy_observer *o, uintptr_t hidden) {
    return &o->table[(hidden * 0x9E3779B97F4A7C15u) >> 32 & (o->buckets - 1)];
}

QY_INLINE void qy_node_enter(struct qy_observer *o, qy_block_node_t *n) {
    QY_NEEDS(&o->lock);
    qy_block_node_t **b = qy_node_bucket(o, n->ptr);
    n->same_bucket = *b;
    *b = n;
}

QY_INLINE void qy_node_leave(struct qy_observer *o, qy_block_node_t *n) {
    QY_NEEDS(&o->lock);
    qy_block_node_t **b = qy_node_bucket(o, n->ptr);
    while (*b != n) b = &(*b)->same_bucket;
    *b = n->same_bucket;
    o->left++;
}

QY_INLINE qy_block_node_t *qy_node_find(struct qy_observer *o, const void *ptr, bool freed) {
    QY_NEEDS(&o->lock);
    qy_block_node_t *n = *qy_node_bucket(o, qy_hide_pointer(ptr));
    while (n && !(n->ptr == qy_hide_pointer(ptr) && n->freed == freed)) n = n->same_bucket;
    return n;
}

// ---- nodes ------------------------------------------------------------------------------------------------

// Those in the table.
QY_INLINE uint64_t qy_node_known(const struct qy_observer *o) { return o->begun - o->left; }

// One for a new block. NULL: no memory.
QY_COLD qy_block_node_t *qy_node_make(struct qy_observer *o);
QY_INLINE qy_block_node_t *qy_node_take(struct qy_observer *o) {
    QY_NEEDS(&o->lock);
    qy_block_node_t *n = o->spares;
    if (QY_UNLIKELY(!n || qy_node_known(o) >= o->buckets)) return qy_node_make(o);
    o->spares = n->older;
    return n;
}

QY_INLINE void qy_node_spare(struct qy_observer *o, qy_block_node_t *n) {
    QY_NEEDS(&o->lock);
    n->older = o->spares;
    o->spares = n;
}

// ---- quarantine -------------------------------------------------------------------------------------------

// Out of quarantine and table, in front of the chain `out`.
QY_INLINE qy_block_node_t *qy_node_leaves(struct qy_observer *o, qy_block_node_t *n, qy_block_node_t *out) {
    qy_assert(o->waiting >= qy_node_ended_bytes(n));
    qy_node_leave(o, n);
    qy_node_remove(&o->quarantine, n);
    o->waiting -= qy_node_ended_bytes(n);
    n->older = out;
    return n;
}

// Those that it has no room for any more, chained by `older`.
QY_COLD qy_block_node_t *qy_node_evict(struct qy_observer *o, size_t bytes);
QY_INLINE qy_block_node_t *qy_node_too_many(struct qy_observer *o) {
    if (QY_LIKELY(o->waiting <= QY_QUARANTINE_BYTES)) return NULL;
    return qy_node_evict(o, QY_QUARANTINE_BYTES - QY_QUARANTINE_LEAVES);
}

// What of a freed block's memory is filled, as filling.h does: all of it. A large one's begins QY_REDZONE before the
// block, since an alignment's zone would else be the part that is looked at first.
QY_INLINE unsigned char *qy_node_dead(const qy_block_node_t *n, size_t *ret_bytes) {
    qy_assert(n->raw_bytes >= 2 * QY_REDZONE);
    if (n->raw_bytes < 2 * QY_REDZONE) __builtin_unreachable();  // what a compiler need not ask
    unsigned char *raw = qy_shown_pointer(n->raw);
    size_t skip = 0;
    if (QY_UNLIKELY(n->raw_bytes > 3 * QY_FILLED))
        skip = (size_t)((unsigned char *)qy_shown_pointer(n->ptr) - raw) - QY_REDZONE;
    *ret_bytes = n->raw_bytes - skip;
    return raw + skip;
}

#endif
