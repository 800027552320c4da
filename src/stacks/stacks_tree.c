// SPDX-License-Identifier: MIT
// stacks_tree.c: adding nodes, and the memory of the tree.
#include "stacks/stacks_tree.h"

#include "base/num.h"
#include "os/os.h"
#include "stacks/own.h"
#include "stacks/unwind.h"

#define LEAST 4096u
#define MOST (1u << 28)
#define SMALL (1u << 16)  // nodes: then it is better to walk longer chains than to touch more pages
#define NODES_PER_CHAIN(limit) ((limit) > SMALL ? 4u : 16u)

qy_tree_t qy_tree;

static size_t pages(size_t bytes) { return qy_round_up(bytes, qy_os_page_size()); }
static size_t node_bytes(uint32_t limit) { return pages(sizeof(qy_stacks_node_t) * ((size_t)limit + 2)); }
static size_t chains(uint32_t limit) { return (size_t)1 << qy_log2_ceil(limit / NODES_PER_CHAIN(limit)); }
static size_t head_bytes(uint32_t limit) { return pages(sizeof(uint32_t) * chains(limit)); }

bool qy_tree_start(uint32_t limit) {
    if (qy_tree.nodes) return true;
    if (limit < LEAST) limit = LEAST;
    if (limit > MOST) limit = MOST;
    for (;; limit /= 2) {
        void *nodes = qy_os_map(node_bytes(limit), qy_os_page_size(), NULL);
        void *heads = nodes ? qy_os_map(head_bytes(limit), qy_os_page_size(), NULL) : NULL;
        if (heads) {
            qy_os_name(nodes, node_bytes(limit), "quarry stacks");
            qy_own_add(nodes, node_bytes(limit));
            qy_own_add(heads, head_bytes(limit));
            qy_tree.heads = heads;
            qy_tree.limit = limit;
            qy_tree.shift = 64 - qy_log2_floor(chains(limit));
            qy_tree.nodes = nodes;
            return true;
        }
        if (nodes) qy_os_unmap(nodes, node_bytes(limit));
        if (limit / 2 < LEAST) return false;
    }
}

uint64_t qy_tree_memory(void) { return qy_tree.nodes ? node_bytes(qy_tree.limit) + head_bytes(qy_tree.limit) : 0; }

void qy_tree_restart(void) {
    if (!qy_tree.nodes) return;
    atomic_fetch_add(&qy_tree.epoch, 1);
    size_t bytes = head_bytes(qy_tree.limit);
    if (!qy_os_purge(qy_tree.heads, bytes))
        for (size_t i = 0; i < chains(qy_tree.limit); i++)
            atomic_store_explicit(&qy_tree.heads[i], 0, memory_order_relaxed);
    if (!qy_os_purge(qy_tree.nodes, node_bytes(qy_tree.limit)))
        for (uint32_t i = 0; i <= qy_tree.limit; i++)
            atomic_store_explicit(&qy_tree.nodes[i].parent, 0, memory_order_relaxed);
    atomic_store(&qy_tree.taken, 0);
    atomic_store(&qy_tree.seen, 0);
}

uint32_t qy_tree_ids(void) {
    uint32_t taken = atomic_load_explicit(&qy_tree.taken, memory_order_relaxed);
    return taken < qy_tree.limit ? taken : qy_tree.limit;
}

// What hangs from such a node hangs from a new one when it is met again, and has a new id by that.
void qy_tree_forget(uintptr_t begin, uintptr_t bytes) {
    if (!qy_tree.nodes) return;
    for (uint32_t id = qy_tree_ids(); id; id--) {
        _Atomic uintptr_t *pc = &qy_tree.nodes[id].pc;
        uintptr_t at = atomic_load_explicit(pc, memory_order_relaxed);
        // A return address may be one behind the last instruction.
        if ((at & ~QY_PC_EXACT) - !(at & QY_PC_EXACT) - begin < bytes)
            atomic_store_explicit(pc, QY_NODE_GONE, memory_order_relaxed);
    }
}

static uint32_t take_id(uint32_t *spare) {
    uint32_t id = *spare;
    *spare = 0;
    // One that is older than what is loaded by now would be taken for a node of what was there before.
    if (id > atomic_load_explicit(&qy_tree.seen, memory_order_relaxed)) return id;
    // Asked first, so that the number does not run round in a process that goes on for long when it is full.
    if (atomic_load_explicit(&qy_tree.taken, memory_order_relaxed) >= qy_tree.limit) return 0;
    id = atomic_fetch_add_explicit(&qy_tree.taken, 1, memory_order_relaxed) + 1;
    return id <= qy_tree.limit ? id : 0;
}

QY_COLD qy_add_result_t qy_tree_add(
    uint32_t parent, uintptr_t pc, uint32_t *spare, qy_stack_emit_t emit, void *arg, uint32_t *ret_id) {
    _Atomic uint32_t *chain = qy_tree_head(parent, pc);
    uint32_t head = atomic_load_explicit(chain, memory_order_acquire);
    *ret_id = qy_tree_find_in(head, 0, parent, pc);
    if (*ret_id) return QY_ADD_FOUND;
    uint32_t id = take_id(spare);
    if (!id) return QY_ADD_FULL;
    qy_stacks_node_t *node = &qy_tree.nodes[id];
    atomic_store_explicit(&node->pc, pc, memory_order_relaxed);
    node->next = head;
    atomic_store_explicit(&node->parent, parent, memory_order_relaxed);
    uint32_t epoch = atomic_load_explicit(&qy_tree.epoch, memory_order_relaxed);
    if (!emit(arg, id, parent, pc & ~QY_PC_EXACT, !(pc & QY_PC_EXACT))) {
        *spare = id;
        return QY_ADD_REFUSED;
    }
    // A handler that ran within emit, forked, and began anew in the child: this id means nothing there.
    if (atomic_load_explicit(&qy_tree.epoch, memory_order_relaxed) != epoch) return QY_ADD_REFUSED;
    while (!atomic_compare_exchange_weak_explicit(chain, &head, id, memory_order_release, memory_order_acquire)) {
        // What came in between is in front of what was searched.
        uint32_t other = qy_tree_find_in(head, node->next, parent, pc);
        if (other) {
            atomic_fetch_add_explicit(&qy_tree.doubled, 1, memory_order_relaxed);
            *ret_id = other;
            return QY_ADD_FOUND;
        }
        node->next = head;
    }
    atomic_store_explicit(&node->parent, parent | QY_NODE_THERE, memory_order_release);
    *ret_id = id;
    return QY_ADD_NEW;
}
