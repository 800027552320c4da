// SPDX-License-Identifier: MIT
// types.h: the words of the page layer, and the record of a chunk. heap/types.h says what is built on it.
//
// The page layer hands out units of address space with pages, and gives pages back to the kernel. It knows nothing of
// blocks, and calls nobody above it. What a span is, and which heap an object belongs to, it only remembers.
//   unit    16 KiB of address space, the granule of everything.
//   chunk   2 MiB, aligned: 128 units.
//   record  what the map of addresses knows of 2 MiB: the head of a chunk's structure, or of a huge object's
//           (heap/huge.h), which begins on a chunk boundary and has it to itself.
//   arena   address space reserved in one piece, opened chunk by chunk.
#ifndef QY_PAGES_TYPES_H
#define QY_PAGES_TYPES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/num.h"
#include "rt/lock.h"

#define QY_UNIT_SHIFT 14
#define QY_UNIT ((size_t)1 << QY_UNIT_SHIFT)
#define QY_CHUNK_SHIFT 21
#define QY_CHUNK ((size_t)1 << QY_CHUNK_SHIFT)
#define QY_CHUNK_UNITS 128u
#define QY_LONG_MAX ((size_t)128 << 20)   // bytes of the longest span, ...
#define QY_LONG_USUAL ((size_t)32 << 20)  // ... and up to where there is one at once (large.c)

typedef unsigned __int128 qy_bits_t;  // one bit per unit, bit 0 the lowest address

typedef struct qy_heap qy_heap_t;
typedef struct qy_slab qy_slab_t;
typedef struct qy_map_record qy_map_record_t;
typedef struct qy_chunk qy_chunk_t;
typedef struct qy_arena qy_arena_t;

typedef enum qy_map_record_kind { QY_RECORD_UNITS,
    QY_RECORD_HUGE,
    QY_RECORD_HUGE_FREE } qy_map_record_kind_t;  // of a huge object that is cached, or being made

// Recycled as what it was, never unmapped.
struct qy_map_record {
    char *base;              // [const] while entered in the map, which writes it
    qy_map_record_t *alias;  // [lock: map] another one with the same entry (map.c)
    _Atomic uint8_t kind;    // qy_map_record_kind_t
    bool tagged;             // [lock: map] its units have tags: no other chunk of units has its entry
};

// Units whose pages went back, and which were not taken since.
typedef struct qy_gone {
    qy_bits_t all;
    qy_bits_t old;    // those of them that went when they were old
    qy_bits_t early;  // those that a run gave back, from a budget (run.c)
} qy_gone_t;

struct qy_chunk {
    qy_map_record_t record;                     // first: the map finds the chunk by it
    qy_chunk_t *next, *prev;                    // [lock: pages] its list by longest run
    qy_arena_t *arena;                          // [const] while entered
    qy_bits_t free, dirty;                      // [lock: pages] dirty is a subset of free
    qy_bits_t old;                              // [lock: pages] of units in use: those that were dirty when taken
    qy_gone_t gone;                             // [lock: pages]
    uint64_t gone_ns;                           // [lock: pages] when pages of this chunk last went
    uint32_t longest;                           // [lock: pages] units in the longest free run
    uint32_t epoch;                             // [lock: pages] when units last became dirty (purge.c)
    bool separate;                              // [lock: pages] pages were moved here: a mapping of its own
    qy_chunk_t *all_next;                       // [lock: pages] every chunk of units, for ever
    _Atomic(qy_slab_t *) span[QY_CHUNK_UNITS];  // the span of each unit; NULL: free, qy_span_freed: was a run
};
_Static_assert(offsetof(qy_chunk_t, record) == 0, "a record of units is its chunk");

#endif
