// SPDX-License-Identifier: MIT
// stacks_tree.h: the tree of stacks: (parent, address) to id, and each pair once.
//
// A hash table of chains that only grow at their heads. A node is written, told to the recorder, and then
// made the head of its chain by compare-and-swap: so whoever can find it finds it told, and nobody ever waits.
// Threads that add the same pair at once may both have told theirs: one becomes the node, the other's id is
// never used.
//
// A stack that was new was told from its outermost frame on, so the node with the next number is most often the one
// that is looked for, and lies beside. Only if it is not, the table is asked.
//
// Memory: 16 bytes per node, used one after the other, and 4 bytes per chain, one chain for each 4 nodes (16 in a small
// tree).
#ifndef QY_STACKS_STACKS_TREE_H
#define QY_STACKS_STACKS_TREE_H

#include <stdatomic.h>

#include "base/compiler.h"

#include "stacks/stack.h"

#define QY_NODE_THERE ((uint32_t)1 << 31)  // in `parent`: the node is in its chain
#define QY_NODE_GONE (~(uintptr_t)0)       // as `pc`: its module was unloaded, and nobody is to find the node any more

typedef struct qy_stacks_node {
    _Atomic uintptr_t pc;     // with QY_PC_EXACT; QY_NODE_GONE at last. All fields are constant once the node is in its
    _Atomic uint32_t parent;  // chain, but for that, and QY_NODE_THERE, which is set last
    uint32_t next;            // in the chain
} qy_stacks_node_t;

typedef struct qy_tree {
    qy_stacks_node_t *nodes;  // by id; 0 is the root
    _Atomic uint32_t *heads;  // ids
    uint32_t limit, shift;    // ids up to limit; 64 - log2 of the number of chains
    _Atomic uint32_t taken;   // ids given out
    _Atomic uint32_t epoch;   // trees that were there before this one
    _Atomic uint32_t seen;    // ids up to here were taken before the last look at the modules (modules.c)
    _Atomic uint64_t doubled;
} qy_tree_t;

extern qy_tree_t qy_tree;

typedef enum qy_add_result {
    QY_ADD_FOUND,
    QY_ADD_NEW,
    QY_ADD_FULL,
    QY_ADD_REFUSED  // by emit
} qy_add_result_t;

// True: a tree of at least 4096 nodes is there.
bool qy_tree_start(uint32_t limit);
uint64_t qy_tree_memory(void);
// All nodes go, and ids begin with 1 again. While no other thread uses the tree.
void qy_tree_restart(void);
// Ids given out so far.
uint32_t qy_tree_ids(void);
// Code of [begin, begin + bytes) was unloaded: other code may come there, and its stacks are not those that are known.
void qy_tree_forget(uintptr_t begin, uintptr_t bytes);

// The id of (parent, pc), which is made if it is not there. *spare: an id of the calling thread's that was never
// told, or 0; taken from and put back there.
qy_add_result_t qy_tree_add(
    uint32_t parent, uintptr_t pc, uint32_t *spare, qy_stack_emit_t emit, void *arg, uint32_t *ret_id);

QY_INLINE _Atomic uint32_t *qy_tree_head(uint32_t parent, uintptr_t pc) {
    uint64_t h = (pc ^ (uint64_t)parent * 0xd6e8feb86659fd93u) * 0x9e3779b97f4a7c15u;
    return &qy_tree.heads[h >> qy_tree.shift];
}

QY_INLINE bool qy_node_is(uint32_t id, uint32_t parent, uintptr_t pc) {
    const qy_stacks_node_t *n = &qy_tree.nodes[id];
    return atomic_load_explicit(&n->pc, memory_order_relaxed) == pc &&
           (atomic_load_explicit(&n->parent, memory_order_relaxed) & ~QY_NODE_THERE) == parent;
}

// 0: not there, up to the node `until` of the chain.
QY_INLINE uint32_t qy_tree_find_in(uint32_t head, uint32_t until, uint32_t parent, uintptr_t pc) {
    while (head != until && !qy_node_is(head, parent, pc)) head = qy_tree.nodes[head].next;
    return head != until ? head : 0;
}

QY_INLINE uint32_t qy_tree_find(uint32_t parent, uintptr_t pc) {
    const qy_stacks_node_t *beside = &qy_tree.nodes[parent + 1];
    if (QY_LIKELY(atomic_load_explicit(&beside->parent, memory_order_acquire) == (parent | QY_NODE_THERE) &&
                  atomic_load_explicit(&beside->pc, memory_order_relaxed) == pc))
        return parent + 1;
    return qy_tree_find_in(atomic_load_explicit(qy_tree_head(parent, pc), memory_order_acquire), 0, parent, pc);
}

#endif
