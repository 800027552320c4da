// SPDX-License-Identifier: MIT
// check_pool.h: how pools tell the checker of their blocks and of what they find; the contract between libquarry and
// libquarry-check.
//
// A process that is checked has a table of this kind under the name quarry_check_pool_v1, which is looked for as
// record_pool.h says of its own. Pools are checked then as with pools:guard, unless QUARRY_CONF says how; each block
// has stacks of the checker's, and a fault is told to it instead of ending the process. Misuse of a pool itself, such
// as frames that end out of order, is told as well, and ends the process then.
//
// The checker knows each block from the calls below, and never asks a pool: so a search for leaks, or a function of
// libc in a signal handler, needs no lock that a pool's thread may hold.
//
//   opened -> (began -> ended -> gone)... -> closed
//
// Any thread, with locks of the pool held. No function allocates from the program's heap, calls a pool, or touches
// errno.
#ifndef QY_RT_CHECK_POOL_H
#define QY_RT_CHECK_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QUARRY_CHECK_POOL_TABLE "quarry_check_pool_v1"

typedef struct quarry_check_pool_fault {
    const char *kind;       // a word of docs/check.md
    const char *function;   // the operation; NULL: none
    const char *pool;       // its name
    const char *pool_kind;  // stack, ring ...; NULL: not known
    uintptr_t pc, sp, fp;   // where the program called the operation; pc 0: not known
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

// How blocks of a pool end, for the search for leaks.
typedef enum quarry_check_pool_ends {
    QUARRY_CHECK_POOL_EACH,     // each is freed: one that nothing points to is lost
    QUARRY_CHECK_POOL_FRAMES,   // with their frame, whether or not something points to them
    QUARRY_CHECK_POOL_LASTING,  // they outlive the process
} quarry_check_pool_ends_t;

typedef struct quarry_check_pool_block {
    uint32_t pool;  // the number that `opened` returned
    uint32_t alloc_stack;
    uintptr_t block;  // in [memory, memory + bytes), which is the block's with its zones; memory is a multiple of 16
    size_t size;
    uintptr_t memory;
    size_t bytes;
} quarry_check_pool_block_t;

typedef struct quarry_check_pool {
    uint32_t bytes;  // of this structure: later versions only add functions at its end
    // The number of the stack that begins with these registers; 0: none.
    uint32_t (*stack)(uintptr_t pc, uintptr_t sp, uintptr_t fp);
    void (*fault)(const quarry_check_pool_fault_t *fault);
    // A pool comes. Returned: its number; 0: no room, and then nothing is to be told of its blocks.
    uint32_t (*opened)(const char *kind, const char *name, quarry_check_pool_ends_t ends);
    // It goes. Its blocks are gone by now.
    void (*closed)(uint32_t pool);
    // A block is live. What was known of its memory is forgotten.
    void (*began)(const quarry_check_pool_block_t *block);
    // The block whose memory begins there is the chunk of another pool, which holds it.
    void (*held)(uintptr_t memory);
    // It has ended, and its memory waits.
    void (*ended)(uintptr_t memory, uint32_t free_stack);
    // Its memory is nobody's block any more.
    void (*gone)(uintptr_t memory);
    // Pools' own records lie here from now on, or no more. What in them looks like an address of a pool's block is not
    // the program's pointer.
    void (*records)(const void *memory, size_t bytes, bool there);
} quarry_check_pool_t;

#endif
