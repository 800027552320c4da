// SPDX-License-Identifier: MIT
// check.h: START HERE. What the parts of quarry check ask of each other: blocks, faults and reports.
//
//   api/check_*.c   the functions that a program calls: malloc and its family, the C++ operators, fork and exit
//   block.c         malloc, free and realloc with their checks
//   pool_blocks.c   what is known of blocks of Quarry's pools
//   records.c       what is known of each block; zone.c canaries and fill; quarantine.c freed blocks
//   report.c        what was found, as JSON lines or text
//   life.c          how checking begins, goes on in children, and ends
#ifndef QY_CHECK_CHECK_H
#define QY_CHECK_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check/records.h"
#include "guard/guard.h"
#include "stacks/stacks.h"

// By which function a block was made.
typedef enum qy_check_family {
    QY_CHECK_MALLOC,
    QY_CHECK_CALLOC,
    QY_CHECK_MEMALIGN,
    QY_CHECK_REALLOC,
    QY_CHECK_NEW,
    QY_CHECK_NEW_ARRAY,
    QY_CHECK_POOL,
    QY_CHECK_FAMILIES
} qy_check_family_t;

typedef struct qy_check_block {
    uintptr_t address;
    size_t size;  // as asked for
    uint32_t alloc_stack, free_stack;
    uint32_t alloc_thread, free_thread;  // the kernel's numbers; 0: not known
    uint64_t ordinal;                    // the how-manyeth block of its alloc_stack; 1...
    qy_check_family_t family;
    bool freed;
    bool is_held;           // a frame ends it, or another pool: it cannot be lost
    bool is_lasting;        // it outlives the process
    uint32_t pool_number;   // of pool_blocks.h; 0: none
    const char *pool;       // its name; NULL: none
    const char *pool_kind;  // stack, ring ...
} qy_check_block_t;

// The block in whose memory, zone or slack the address lies, live or in quarantine; or freed before, where nothing has
// taken its place. Of a pool's block within a block of the heap: the pool's. Any thread, no locks held, signal handlers
// too. Some 20 ns.
bool qy_check_find(uintptr_t address, qy_check_block_t *ret);
// All live blocks but those of pools, until visit says no. Takes no locks and allocates nothing: for a stopped world or
// a forked child.
void qy_check_each_live(bool (*visit)(const qy_check_block_t *b, void *arg), void *arg);

typedef struct qy_check_fault {
    const char *kind;      // one of the words of docs/check.md
    const char *function;  // that was called; NULL: none
    uintptr_t address;
    bool is_write;
    size_t bytes;      // 0: not known
    bool is_evidence;  // found later: nobody knows who did it
    bool has_block;
    qy_check_block_t block;
    int64_t offset;      // of the access, from the block's begin
    const char *detail;  // NULL: none
} qy_check_fault_t;

// One report: it is written and counted, and the program goes on, or ends with option abort. Safe in signal handlers.
// `from`: where the program was; NULL: the caller of this library.
QY_COLD void qy_check_report(const qy_check_fault_t *f, const qy_stack_regs_t *from);
// Something that could not be done here, and what follows of it.
QY_COLD void qy_check_note(const char *text);

// From an address to its 64 KiB, which blocks of pools lie in (pool_blocks.h); 0: none ever did.
#define QY_CHECK_POOL_PIECE 16
#define QY_CHECK_POOL_LEAF 32
typedef _Atomic uintptr_t qy_check_pool_entry_t;
extern QY_HIDDEN _Atomic(qy_check_pool_entry_t *) qy_check_pool_leaves[1 << (48 - QY_CHECK_POOL_LEAF)];

QY_INLINE bool qy_check_may_be_pool(const void *p) {
    uintptr_t address = (uintptr_t)p;
    if (QY_UNLIKELY(address >> 48)) return false;
    qy_check_pool_entry_t *leaf =
        atomic_load_explicit(&qy_check_pool_leaves[address >> QY_CHECK_POOL_LEAF], memory_order_acquire);
    return QY_UNLIKELY(leaf) && atomic_load_explicit(&leaf[(address & UINT32_MAX) >> QY_CHECK_POOL_PIECE],
                                    memory_order_acquire) != 0;
}

// Has a block of ours ever been near the address? A few instructions; mostly no for stacks and for data of programs.
static inline bool qy_check_may_be_heap(const void *p) {
    return qy_check_sheet((uintptr_t)p) || qy_guard_is_near(p) || qy_check_may_be_pool(p);
}
// Does [p, p + n), which begins there, lie within one live block?
bool qy_check_is_live(const void *p, size_t n);

// Does the program's access to [p, p + n) stay within one live block, if it begins in memory of the heap? Else it is
// reported. For interposed functions of libc. A few ns.
void qy_check_access(const void *p, size_t n, bool is_write, const char *function);
static inline void qy_check_read(const void *p, size_t n, const char *function) {
    if (n && qy_check_may_be_heap(p)) qy_check_access(p, n, false, function);
}
static inline void qy_check_write(const void *p, size_t n, const char *function) {
    if (n && qy_check_may_be_heap(p)) qy_check_access(p, n, true, function);
}

#endif
