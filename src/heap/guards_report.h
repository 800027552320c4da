// SPDX-License-Identifier: MIT
// guards_report.h: what is told of a guarded block that the program used wrongly, on standard error.
//
//   quarry: note: used by thread 12 at prog+0x1190 libc.so.6+0x27249 ...
//   quarry: note: freed by thread 12 at ...
//   quarry: note: allocated by thread 12 at ...
//   quarry: use-after-free-write: 0x7f..., 4 bytes into a freed block of 24 bytes at 0x7f...
//
// An address in a file is one that `addr2line -e FILE` takes.
#ifndef QY_HEAP_GUARDS_REPORT_H
#define QY_HEAP_GUARDS_REPORT_H

#include "guard/guard.h"
#include "stacks/innermost.h"

#define QY_GUARDS_FRAMES 16u  // of each stack

typedef enum qy_guards_event {
    QY_GUARDS_BORN,
    QY_GUARDS_DIED,
    QY_GUARDS_EVENTS
} qy_guards_event_t;

// The stacks of a slot. Any thread may read them while they are written, and then has some of both.
typedef struct qy_guards_stack {
    _Atomic uintptr_t pc[QY_GUARDS_FRAMES];
    _Atomic uint32_t count;
} qy_guards_stack_t;
typedef struct qy_guards_row {
    qy_guards_stack_t stack[QY_GUARDS_EVENTS];
    _Atomic bool told;  // of an access: each block once
} qy_guards_row_t;

// A fault, as it will stand in the report.
typedef struct qy_guards_fault {
    const char *kind;
    uintptr_t address;
    const qy_guard_block_t *block;
    const qy_guards_row_t *row;
    uintptr_t used[QY_GUARDS_FRAMES];
    unsigned frames;
    const char *what;  // was done: "used", "freed again"
} qy_guards_fault_t;

// A walk, and the name of a file, may wait for the dynamic linker, whose lock a thread may hold that wants this one: so
// no wait is without end. False: it was not to be had.
bool qy_guards_lock_soon(qy_lock_t *lock, unsigned tries);
qy_lock_t *qy_guards_report_lock(void);  // for a fork

// One write. `with_line`: the last line, too; else the caller says it.
void qy_guards_tell(const qy_guards_fault_t *f, bool with_line);

#endif
