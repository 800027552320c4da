// SPDX-License-Identifier: MIT
// format.h: docs/trace-format.md in C: the blocks of a trace and the operations of its records.
#ifndef QY_TRACE_FORMAT_H
#define QY_TRACE_FORMAT_H

#include <stdint.h>

#define QY_TRACE_MAGIC UINT32_C(0x42525451)  // "QTRB"
#define QY_TRACE_VERSION 1
#define QY_TRACE_GRAIN ((uint32_t)4096)  // at least; a page, if that is more

typedef enum qy_trace_kind {
    QY_TRACE_HEAD = 1,
    QY_TRACE_EVENTS = 2,
    QY_TRACE_END = 3,
    QY_TRACE_TEXT = 4,
} qy_trace_kind_t;

#define QY_TRACE_SEALED 0x1
#define QY_TRACE_PACKED 0x2

// The head of a block. Its payload follows. While a block is filled, `used` and `events` grow with each record;
// `raw`, `sum` and the flag come with the seal.
typedef struct qy_trace_block {
    uint32_t magic;
    uint8_t kind;
    _Atomic uint8_t flags;
    uint16_t version;
    uint32_t span;
    _Atomic uint32_t used;
    uint32_t raw;
    uint32_t thread;
    uint32_t sequence;
    _Atomic uint32_t events;
    uint64_t time;
    uint64_t address;
    uint64_t sum;
    uint32_t process;
    uint32_t zero;
} qy_trace_block_t;
_Static_assert(sizeof(qy_trace_block_t) == 64, "the head of a block has 64 bytes");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the recorder stores structures as they are");

typedef enum qy_trace_op {
    QY_OP_ALLOC = 1,
    QY_OP_FREE = 2,
    QY_OP_REALLOC = 3,
    QY_OP_FAILED = 4,
    QY_OP_STACK = 5,
    QY_OP_MODULE = 6,
    QY_OP_THREAD = 7,
    QY_OP_PROCESS = 8,
    QY_OP_MEMORY = 9,
    QY_OP_CLOCK = 10,
    QY_OP_POOL = 11,
    QY_OP_TOUCHED = 12,
    QY_OP_LOST = 13,
    QY_OP_MARK = 14,
    QY_OP_EXTENSION = 15,
} qy_trace_op_t;

// The variant of TOUCHED for a block that calloc has just handed out.
#define QY_TOUCHED_ZEROED 1u

// Kinds of extensions.
typedef enum qy_trace_extension {
    QY_EXTENSION_GONE = 1,
    QY_EXTENSION_USAGE = 2,
    QY_EXTENSION_RESIDENT = 3,
    QY_EXTENSION_CHILD = 4,
    QY_EXTENSION_HIDDEN_CHILD = 5,
    QY_EXTENSION_WRITTEN = 6,
} qy_trace_extension_t;
#define QY_USAGE_NUMBERS 8

// What a program does besides that mallocs answer differently: the last number of a usage.
#define QY_TRAIT_ASKS 1u           // it called malloc_usable_size
#define QY_TRAIT_NO_HUGE_PAGES 2u  // the kernel gives it none (PR_SET_THP_DISABLE)
#define QY_TRAIT_EARLY 4u          // it allocated before the constructors of preloaded libraries ran

// Variants: bits 0 to 2, and bit 3 where a stack follows.
#define QY_V_STACK 8u

typedef enum qy_trace_alloc {
    QY_BY_MALLOC,
    QY_BY_CALLOC,
    QY_BY_MEMALIGN,
    QY_BY_NEW,
    QY_BY_ALIGNED_NEW,
    QY_BY_REALLOC,
} qy_trace_alloc_t;

typedef enum qy_trace_free {
    QY_FREE_PLAIN,
    QY_FREE_DELETE,
    QY_FREE_SIZED,
    QY_FREE_NULL,
    QY_FREE_OTHER,
} qy_trace_free_t;

enum { QY_THREAD_BEGINS,
    QY_THREAD_ENDS,
    QY_THREAD_NAME };
enum { QY_PROCESS_FORK,
    QY_PROCESS_EXEC,
    QY_PROCESS_EXIT };
enum { QY_MODULE_LOADED,
    QY_MODULE_UNLOADED };

typedef enum qy_trace_pool {
    QY_POOL_CREATED,
    QY_POOL_DESTROYED,
    QY_POOL_PUSHED,
    QY_POOL_POPPED,
    QY_POOL_SEALED,
    QY_POOL_RELEASED,
    QY_POOL_ALLOC,
    QY_POOL_FREE,
    QY_POOL_RESIZED,
    QY_POOL_EMPTIED,
    QY_POOL_HELD,
} qy_trace_pool_t;

typedef enum qy_trace_lost {
    QY_LOST_NO_ROOM = 1,
    QY_LOST_REENTERED = 2,
    QY_LOST_DISK_FULL = 3,
    QY_LOST_TABLE_FULL = 4,
} qy_trace_lost_t;

// Kinds of addresses, each with a last one that differences refer to.
#define QY_KINDS_ALLOC 32
#define QY_KIND_FREE 32
#define QY_KIND_POOL_ALLOC 33
#define QY_KIND_POOL_FREE 34
#define QY_KINDS 35

static inline unsigned qy_trace_kind_of(uint64_t size) { return (unsigned)((size + 15) >> 4) & (QY_KINDS_ALLOC - 1); }

#endif
