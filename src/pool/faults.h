// SPDX-License-Identifier: MIT
// faults.h: what a checked pool found. Told to the checker (rt/check_pool.h), and then the program goes on; without
// one, the process ends with one line, and the block's stacks before it.
#ifndef QY_POOL_FAULTS_H
#define QY_POOL_FAULTS_H

#include "pool/node.h"
#include "pool/pool.h"
#include "rt/diag.h"
#include "stacks/stack.h"

// Canaries of the block were written to: found at its end.
QY_COLD void qy_found_canary(quarry_pool_t *pool, const qy_block_node_t *n);
// It was written to in quarantine.
QY_COLD void qy_found_written(quarry_pool_t *pool, const qy_block_node_t *n);
// ptr, which `function` was given, is the start of no live block.
QY_COLD void qy_found_pointer(
    quarry_pool_t *pool, const qy_stack_regs_t *caller, const char *function, const void *ptr);
// The block is resized from another frame, of this group.
QY_COLD void qy_found_frame(
    quarry_pool_t *pool, const qy_stack_regs_t *caller, const qy_block_node_t *n, uint64_t group);

// The process is about to be ended for a misuse of a pool itself (a qy_fatal_watch_t). Told to the checker, which is
// there.
QY_COLD void qy_found_misuse(qy_fault_t fault, const void *ptr, const char *detail);

#endif
