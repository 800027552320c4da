// SPDX-License-Identifier: MIT
// plan.h: the file between `quarry replay` and the replayer: a trace, compiled.
//
//   struct qy_plan_head | segment | segment | ...
//   segment: struct qy_plan_segment | word | word | ...      (8 bytes each, little-endian)
//
// A segment is a run of operations of one thread. What orders the operations of different threads is, in a plan of
// dependencies, three things, and in a strict plan (QY_PLAN_STRICT) only the order of the segments in the file:
//
// - Slots. A slot holds one block at a time, and counts the operations on it: its stamp is 0 at first. Who
//   operates on a slot that another thread touched last has a WAIT for the stamp before, and the operation that
//   makes this stamp has the SIGNAL bit, so that only operations somebody waits for look for waiters.
// - Epochs. The recorded order is cut into epochs. A thread enters epoch e when all operations of the epochs up to
//   e - window are done. So no WAIT is needed for what was done that long ago, and no thread runs far ahead. A run that
//   looks at its memory has a window of 1, and a LOOK is the only operation of its epoch.
// - Lives. Thread 0 lives from the start to the end. SPAWN makes another one; its value counts the SPAWNs
//   of the plan in recorded order, and they are done in this order. JOIN waits for the end of a thread.
//
// tools/crates/quarry-replay/src/plan.rs is this file in Rust; a test there compares the two. The replayer trusts
// nothing in a plan: load.c and check.c refuse one whose slots, threads, stamps or waits do not fit together.
#ifndef QUARRY_REPLAY_PLAN_H
#define QUARRY_REPLAY_PLAN_H

#include <stdint.h>

#define QY_PLAN_MAGIC "QRYPLAN"  // eight bytes with the zero behind it
#define QY_PLAN_VERSION 3

#define QY_PLAN_STRICT 1  // flags

// A word: kind in bits 0 to 3, SIGNAL in bit 4, a slot or thread in bits 5 to 31, a value in bits 32 to 63.
#define QY_PLAN_KIND_MASK 15
#define QY_PLAN_SIGNAL 16
#define QY_PLAN_INDEX_SHIFT 5
#define QY_PLAN_INDEX_BITS 27
#define QY_PLAN_VALUE_SHIFT 32

#define QY_PLAN_MALLOC 1     // slot, size
#define QY_PLAN_CALLOC 2     // slot, size
#define QY_PLAN_MEMALIGN 3   // slot, size; an ALIGN goes before it
#define QY_PLAN_REALLOC 4    // slot, size; of NULL if the slot is empty
#define QY_PLAN_FREE 5       // slot
#define QY_PLAN_FREE_NULL 6  // free(NULL)
#define QY_PLAN_STATS 7      // the s of a .ms file
#define QY_PLAN_KINDS 8      // kinds below it are counted and timed
#define QY_PLAN_WAIT 8       // slot, stamp: wait until it has this stamp
#define QY_PLAN_TIME 9       // nanoseconds since the start, in bits 5 to 63
#define QY_PLAN_SPAWN 10     // thread, number of the SPAWN
#define QY_PLAN_JOIN 11      // thread
#define QY_PLAN_WIDE 12      // value: the upper half of the size of the next word
#define QY_PLAN_ALIGN 13     // value: the alignment of the next word, as log2
#define QY_PLAN_TOUCH 14     // value: of the block of the next word the program wrote so many lines of 64 bytes
#define QY_PLAN_LOOK 15      // value: number of the LOOK: the recorder looked at the process here

#define QY_PLAN_SLOTS_MAX (UINT32_C(1) << QY_PLAN_INDEX_BITS)
#define QY_PLAN_WINDOW_MAX 64
#define QY_PLAN_ALIGN_MAX 30

typedef struct qy_plan_head {
    char magic[8];
    uint32_t version;
    uint32_t flags;
    uint32_t threads;  // with thread 0
    uint32_t alive;    // most threads at once, with thread 0
    uint32_t slots;    // of the table
    uint32_t window;   // epochs, from 1
    uint32_t epochs;   // of a strict plan: 1
    uint32_t segments;
    uint64_t bytes;                      // of the file
    uint64_t operations[QY_PLAN_KINDS];  // of each kind; [0] is their sum
    uint64_t peak_live;                  // requested bytes, as recorded
    uint64_t end_live;
    uint64_t peak_blocks;
    uint64_t duration_ns;
} qy_plan_head_t;

typedef struct qy_plan_segment {
    uint32_t thread;
    uint32_t epoch;       // not less than the segment's before; of a strict plan: 0
    uint32_t words;       // at least 1
    uint32_t operations;  // words among them that are counted
} qy_plan_segment_t;

_Static_assert(sizeof(qy_plan_head_t) == 144, "mirrored in plan.rs");
_Static_assert(sizeof(qy_plan_segment_t) == 16, "mirrored in plan.rs");

static inline unsigned qy_plan_kind(uint64_t word) { return (unsigned)(word & QY_PLAN_KIND_MASK); }
static inline uint32_t qy_plan_index(uint64_t word) { return (uint32_t)word >> QY_PLAN_INDEX_SHIFT; }
static inline uint32_t qy_plan_value(uint64_t word) { return (uint32_t)(word >> QY_PLAN_VALUE_SHIFT); }

#endif
