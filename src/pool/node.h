// SPDX-License-Identifier: MIT
// node.h: the observer's register: one node per block, found by address, in order of age, and the
// quarantine of freed ones.
//
// Addresses in nodes are stored inverted, so that leak checkers, which scan memory for pointers, see
// only those of the program.
#ifndef QY_POOL_NODE_H
#define QY_POOL_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QY_REDZONE ((size_t)16)
#define QY_CANARY_BYTE 0xB7
#define QY_RAW_BYTE 0xD5   // new, not zeroed
#define QY_DEAD_BYTE 0xDD  // freed
#define QY_TRACE_FRAMES 6

#define QY_QUARANTINE_BYTES ((size_t)1 << 20)
#define QY_QUARANTINE_BLOCKS 1024

typedef struct qy_block_node {
    struct qy_block_node *same_bucket;
    struct qy_block_node *newer, *older;  // of the same list: live, or quarantine
    uintptr_t ptr, raw;                   // inverted
    size_t size, alignment, raw_bytes;
    uint64_t group;
    bool freed;
    bool fenced;                                          // its memory is that of fence.h
    void *born[QY_TRACE_FRAMES], *died[QY_TRACE_FRAMES];  // return addresses, NULL-terminated unless full
} qy_block_node_t;

struct qy_observer;

typedef enum qy_what {
    QY_IS_NOTHING,
    QY_IS_BLOCK,   // the start of a live block
    QY_IS_INSIDE,  // within a live block
    QY_WAS_FREED,  // in quarantine
} qy_what_t;

static inline uintptr_t qy_hide_pointer(const void *p) { return ~(uintptr_t)p; }
static inline void *qy_shown_pointer(uintptr_t hidden) { return (void *)~hidden; }

qy_block_node_t *qy_node_new(void);  // zeroed; NULL: no memory
void qy_node_free(qy_block_node_t *node);
void qy_node_trace(void *trace[QY_TRACE_FRAMES]);
void qy_node_print_traces(const qy_block_node_t *node);  // where it was allocated, where freed, on stderr

struct qy_observer *qy_observer_new(void);
void qy_observer_delete(struct qy_observer *o);  // empty by now
void qy_observer_fork(struct qy_observer *o, int phase);

bool qy_observer_add(struct qy_observer *o, qy_block_node_t *node);         // false: no memory for the table
qy_block_node_t *qy_observer_take(struct qy_observer *o, const void *ptr);  // out of the register; NULL: not there
// Out of the register: all of the groups, chained by `older`.
qy_block_node_t *qy_observer_take_groups(struct qy_observer *o, uint64_t first, uint64_t last);
// Into quarantine. Returned, chained by `older`: those it has no room for any more.
qy_block_node_t *qy_observer_quarantine(struct qy_observer *o, qy_block_node_t *node);
qy_block_node_t *qy_observer_release_quarantine(struct qy_observer *o);
qy_what_t qy_observer_explain(struct qy_observer *o, const void *ptr, qy_block_node_t *ret_copy);
uint64_t qy_observer_live(struct qy_observer *o, size_t *ret_bytes);  // blocks; ret_bytes may be NULL
bool qy_observer_all(struct qy_observer *o, bool (*holds)(const qy_block_node_t *node, void *arg), void *arg);

#endif
