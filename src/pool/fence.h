// SPDX-License-Identifier: MIT
// fence.h: memory for a block that ends where a page without access begins. The processor finds each access beyond it,
// and each access after its end, at the instruction that does it.
//
//   raw ->  [ canaries ][ block ........ ][ canaries: fewer than the alignment ]  | a page without access |
//
// raw is a mapping of the block's own, of whole pages.
#ifndef QY_POOL_FENCE_H
#define QY_POOL_FENCE_H

#include "pool/node.h"

// Memory for n->size bytes at n->alignment: sets raw, raw_bytes and ptr. False: the kernel refuses, often because there
// are too many mappings.
bool qy_fence_take(qy_block_node_t *n);
// Nobody may touch the block from now on; its address stays taken.
void qy_fence_hide(qy_block_node_t *n);
void qy_fence_give(qy_block_node_t *n);
// What it takes from the kernel while the block lives.
size_t qy_fence_bytes(const qy_block_node_t *n);

#endif
