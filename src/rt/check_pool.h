// SPDX-License-Identifier: MIT
// check_pool.h: how pools tell the checker what they find; the contract between libquarry and libquarry-check.
//
// A process that is checked has a table of this kind under the name quarry_check_pool_v1, which is looked for as
// record_pool.h says of its own. Pools are checked then as with pools:guard, unless QUARRY_CONF says how; each block
// has stacks of the checker's, and a fault is told to it instead of ending the process. Misuse of a pool itself, such
// as frames that end out of order, is told as well, and ends the process then.
//
// Any thread, with locks of the pool held. No function allocates, calls a pool, or touches errno.
#ifndef QY_RT_CHECK_POOL_H
#define QY_RT_CHECK_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QUARRY_CHECK_POOL_TABLE "quarry_check_pool_v1"

typedef struct quarry_check_pool_fault {
    const char *kind;      // a word of docs/check.md
    const char *function;  // the operation; NULL: none
    const char *pool;      // its name
    uintptr_t pc, sp, fp;  // where the program called the operation; pc 0: not known
    uintptr_t address;
    size_t bytes;
    int64_t offset;  // of the access, from the block's begin
    bool is_write, is_evidence, has_block, freed;
    bool is_last;        // the process ends now
    const char *detail;  // NULL: none
    uint32_t alloc_stack, free_stack;
    uintptr_t block;
    size_t size;
} quarry_check_pool_fault_t;

typedef struct quarry_check_pool {
    uint32_t bytes;  // of this structure: later versions only add functions at its end
    // The number of the stack that begins with these registers; 0: none.
    uint32_t (*stack)(uintptr_t pc, uintptr_t sp, uintptr_t fp);
    void (*fault)(const quarry_check_pool_fault_t *fault);
} quarry_check_pool_t;

#endif
