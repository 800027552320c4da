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

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

struct qy_observer;

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
// The block at ptr has ended, and is the caller's; NULL: none is live there.
qy_block_node_t *qy_observer_take(struct qy_observer *o, const void *ptr);
// All of the groups have ended, chained by `older`, the newest first.
qy_block_node_t *qy_observer_take_groups(struct qy_observer *o, uint64_t first, uint64_t last);
// Into quarantine: the chain, of which the last becomes the newest. Returned, chained by `older`: those it has no room
// for any more.
qy_block_node_t *qy_observer_quarantine(struct qy_observer *o, qy_block_node_t *chain);
qy_block_node_t *qy_observer_release_quarantine(struct qy_observer *o);
// The newest leave quarantine and are spared, as long as `goes` says so. It is called with the lock held, and has
// looked at the block when it says yes.
typedef bool qy_node_goes_t(const qy_block_node_t *node, void *arg);
void qy_observer_newest(struct qy_observer *o, qy_node_goes_t *goes, void *arg);
// Out of quarantine: all with memory in [from, to).
qy_block_node_t *qy_observer_within(struct qy_observer *o, uintptr_t from, uintptr_t to);
// Nodes that are in the table, or out of it, of which nobody knows any more.
void qy_observer_forget(struct qy_observer *o, qy_block_node_t *chain);
void qy_observer_spare(struct qy_observer *o, qy_block_node_t *chain);

qy_what_t qy_observer_explain(struct qy_observer *o, const void *ptr, qy_block_node_t *ret_copy);
uint64_t qy_observer_live(struct qy_observer *o, size_t *ret_bytes);  // blocks; ret_bytes may be NULL
bool qy_observer_all(struct qy_observer *o, bool (*holds)(const qy_block_node_t *node, void *arg), void *arg);

#endif
