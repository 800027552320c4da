// SPDX-License-Identifier: MIT
// leak_flood.h: which blocks a program can still reach, and what hangs on those that it cannot.
//
// Three passes over the words of memory, each with a stack of its own in memory from the kernel:
//   1. From the roots through pointers to the starts of blocks: REACHED. Four kinds of pointers into a block count as
//      such, as in valgrind's memcheck: std::string of the old ABI, a length of 64 bits before the data, new[] with its
//      count, and a base class that is not the first.
//   2. From other pointers into blocks, and those with bits of something else in their upper 16: POSSIBLE.
//   3. Among the rest: a head is a block to which no pointer leads from outside the circle that it is on. Each other
//      block is counted for one head, the first that leads to it. Of a circle the head is the oldest block of the site
//      that was seen first.
// Low bits of something else make a pointer one into the middle of its block, without more.
//
// Threads: one, in a process that is a copy, or where all others stand still. Memory that cannot be read is passed by.
#ifndef QY_CHECK_LEAK_FLOOD_H
#define QY_CHECK_LEAK_FLOOD_H

#include "check/leak_pointer.h"

typedef enum qy_leak_kind {
    QY_LEAK_DEFINITE,
    QY_LEAK_INDIRECT,
    QY_LEAK_IS_POSSIBLE,
    QY_LEAK_REACHABLE,
    QY_LEAK_KINDS
} qy_leak_kind_t;

typedef struct qy_leak_flood {
    qy_leak_space_t space;
    uint64_t deadline;    // qy_os_now_ns; 0: none
    uint64_t words;       // looked at so far
    const char *stopped;  // NULL, or why the answer is not whole
    bool in_records;      // what is looked at leads to no block of a pool
    qy_os_touched_t touched;
    struct leak_frame *stack;
    size_t stack_bytes, depth;
} qy_leak_flood_t;

// False: no memory, and `stopped` says so.
bool qy_leak_flood_begin(qy_leak_flood_t *f);
void qy_leak_flood_end(qy_leak_flood_t *f);

// What is in [begin, end) can be reached. Whole words at multiples of 8 count.
void qy_leak_flood_root(qy_leak_flood_t *f, uintptr_t begin, uintptr_t end);
// These are records of pools: what leads to blocks of pools is no pointer of the program's.
void qy_leak_flood_records(qy_leak_flood_t *f, uintptr_t begin, uintptr_t end);
// So is the block itself (a block that nobody may leak).
void qy_leak_flood_block(qy_leak_flood_t *f, uint32_t block);
// After all roots: what can be reached by the doubtful pointers.
void qy_leak_flood_possible(qy_leak_flood_t *f);

// After that: calls `found` for each block with its kind, for heads with what hangs on them. Not if the flood was
// stopped.
typedef void qy_leak_found_t(
    const qy_leak_block_t *block, qy_leak_kind_t kind, uint64_t held_bytes, uint64_t held_blocks, void *arg);
void qy_leak_flood_sort_out(qy_leak_flood_t *f, qy_leak_found_t *found, void *arg);

#endif
