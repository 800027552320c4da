// SPDX-License-Identifier: MIT
// stacks.h: the call stack of an allocation as one number.
//
// A stack is a node in a tree: node = (id of the caller's node, address). The recorder asks for the id of the
// stack it was called on; nodes that are new are told to it, each once, before anybody can get their id.
//
// A capture allocates nothing through malloc, takes no lock, and reads memory only where it cannot
// fault: on the thread's own stack, or by asking the kernel to copy it. It may be called from signal
// handlers, before constructors, on alternative and hand-made stacks (swapcontext, coroutines); it needs less
// than 1 KiB of stack, 2 KiB when it meets an address for the first time. It finds fewer frames where the tables
// of the program don't suffice: unwind.h says when.
#ifndef QY_STACKS_STACKS_H
#define QY_STACKS_STACKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "stacks/stack.h"

#define QY_STACK_NODES (1024 * 1024)  // the usual limit of nodes in a process: 17 MiB, used as needed

typedef enum qy_stacks_mode {
    QY_STACKS_NONE,
    QY_STACKS_FP,  // frame pointers: right only for code compiled with -fno-omit-frame-pointer
    QY_STACKS_CFI  // the tables of .eh_frame, remembered per address. x86-64
} qy_stacks_mode_t;

// Start, before any capture. Calls after the first find it done; one that comes meanwhile is told false, and need not
// wait. `limit`: nodes at most, 0 for QY_STACK_NODES; where the memory cannot be had it is halved, down to 4096. With a
// limit the other tables are small too. False: no memory, captures give 0. Costs a few system calls.
bool qy_stacks_start(qy_stacks_mode_t mode, uint32_t limit);
// What is in force; CFI becomes FP on processors other than x86-64.
qy_stacks_mode_t qy_stacks_mode(void);

// The shared library this code is in: its begin and its bytes. 0: it is a part of the program's own file.
uintptr_t qy_stacks_own(uintptr_t *ret_bytes);

// The id of the stack that begins at `from`; 0: not started, re-entered, no room for new nodes, or not a
// single frame. Ids are unique in the process and begin with 1.
uint32_t qy_stack_capture_from(const qy_stack_regs_t *from, qy_stack_emit_t emit, void *arg);
// The same from the caller on, without the frames of the shared library this code is in.
uint32_t qy_stack_capture(qy_stack_emit_t emit, void *arg);
// The same from `from` on.
uint32_t qy_stack_capture_outside(const qy_stack_regs_t *from, qy_stack_emit_t emit, void *arg);

// What most calls of that find at once; 0: it has to look.
uint32_t qy_stack_recall(const qy_stack_regs_t *from);

// Modules have gone (dlclose): forget what was learnt from their tables. Costs 50 us. Until it is called, stacks
// through code that was loaded in their place may be wrong.
void qy_stacks_modules_changed(void);
// One of them was there: from now on no stack through this range has an id that it had before. Before that call.
void qy_stacks_unloaded(uintptr_t begin, uintptr_t bytes);

// From a hold to its open, each capture first calls `settle` with the argument of its emit. False: it gives 0. For a
// time in which what is loaded changes, and captures of other threads must not go by what was known before.
typedef bool qy_stacks_settle_t(void *arg);
void qy_stacks_hold(qy_stacks_settle_t *settle);
void qy_stacks_open(void);
uint32_t qy_stacks_holds(void);  // that are not open yet

// Ids given out so far; and those that were given out before the last look at what is loaded found nothing new.
uint32_t qy_stacks_ids(void);
uint32_t qy_stacks_seen(void);
// Has no other node room? Then stacks that need one are 0.
bool qy_stacks_full(void);
// The look: ids up to `id` were given out before it. The highest one counts.
void qy_stacks_see(uint32_t id);

// In the child of a fork: begin anew with an empty tree, so that the child's file has all nodes in it.
// Call it in the fork handler, before the child has other threads. (Without it ids go on and mean the parent's nodes.)
void qy_stacks_restart(void);

// The calling thread ends: its memory (150 KiB of address space; used are some 20 KiB, and 1.5 KiB for each of up to 64
// stacks that come often) goes to the next new thread. A capture after it is all right, but takes memory again.
void qy_stacks_thread_end(void);

typedef struct qy_stacks_stats {
    uint64_t captures;   // that gave an id, or could have
    uint64_t reentered;  // given 0: within another capture of the thread
    uint64_t full;       // given 0: no node left
    uint64_t failed;     // given 0: emit or settle refused, or no memory for the thread
    uint64_t deep;       // more than QY_STACK_DEPTH frames
    uint64_t cut;        // the outer end was not reached: no table, or one that is not understood
    uint64_t joined;     // the outer frames were those of the thread's capture before
    uint64_t frames;     // frames that were unwound (of joined ones, the new ones only)
    uint64_t foreign;    // on other stacks than the thread's own
    uint64_t doubled;    // nodes told twice, by threads that met; one id is used
    uint64_t nodes, limit;
    uint64_t rules_made;  // addresses looked up in .eh_frame
    uint64_t memory;      // bytes of address space held
} qy_stacks_stats_t;

// Sums over all threads; not exact while they run.
void qy_stacks_get_stats(qy_stacks_stats_t *ret);

#endif
