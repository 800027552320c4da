// SPDX-License-Identifier: MIT
// map.h: from an address to what is there. Two flat sparse tables, reserved once:
//
//   tag[(p >> 14) & mask]    uint32: heap id << 8 | purged << 7 | class, for units of slabs; else 0.
//                            The one load free() needs to know "mine, and of which class".
//   chunks[(p >> 21) & ...]  the chunk record at p; slow paths only, exact (the record knows its base).
//
// The tables are masked, not sized for the whole address space: arenas may lie anywhere as long as
// no two chunks share an entry, which qy_map_add refuses (the caller takes another address). So one
// binary serves 39 to 57 bits of address, tagged pointers find their entry, and a process limited
// to 256 MiB pays 4 MiB. A *foreign* pointer shares an entry with a live slab with a probability of
// heap size / 1 TiB; all that is lost then is the diagnosis of an invalid free.
// Unwritten parts are read-only zero pages: they cost nothing and free(NULL) may read them.
#ifndef QY_HEAP_MAP_H
#define QY_HEAP_MAP_H

#include "heap/types.h"

// Set in the tags of a slab of which some blocks are purged: their marks are gone with their pages, so
// every free in such a slab takes the slow path, which looks at the slab's own record of them.
#define QY_TAG_PURGED 0x80u
#define QY_TAG_CLASS 0x7Fu
// A bit of the heap's id, so that a freer knows from the tag that it must take the heap's lock.
#define QY_HEAP_ID_FIRST_CLASS (1u << 23)
#define QY_TAG_FIRST_CLASS (QY_HEAP_ID_FIRST_CLASS << 8)

// Words of their own, not in the struct below: free() reaches each in one instruction.
extern QY_HIDDEN uint32_t *qy_map_tags;
extern QY_HIDDEN size_t qy_map_mask;  // entries - 1

typedef struct qy_map {
    _Atomic(qy_chunk_t *) *chunks;
    size_t chunk_mask;
} qy_map_t;

extern QY_HIDDEN qy_map_t qy_map;  // [const] after qy_map_init; before it, one zero entry: everything is unknown

bool qy_map_init(void);

QY_INLINE uint32_t qy_map_tag(const void *p) {
    return __atomic_load_n(&qy_map_tags[((uintptr_t)p >> QY_UNIT_SHIFT) & qy_map_mask], __ATOMIC_RELAXED);
}
QY_INLINE void qy_map_set_tag(const char *unit, uint32_t tag) {
    __atomic_store_n(&qy_map_tags[((uintptr_t)unit >> QY_UNIT_SHIFT) & qy_map_mask], tag, __ATOMIC_RELAXED);
}

// Enter a chunk record at its base, and make the tags of its units writable if `units`.
typedef enum qy_map_answer {
    QY_MAP_ADDED,
    QY_MAP_TAKEN,      // the entry belongs to another chunk: take another address
    QY_MAP_NO_MEMORY,  // the tags could not be made writable
} qy_map_answer_t;
qy_map_answer_t qy_map_add(qy_chunk_t *chunk, bool units);
// Its entry, if it has it.
void qy_map_remove(qy_chunk_t *chunk);
// The same of a record that is at `base` no more.
void qy_map_remove_from(const char *base, qy_chunk_t *chunk);

qy_lock_t *qy_map_lock(void);  // for fork.c

// Bytes of the tables that are writable (and so may be touched).
size_t qy_map_bytes(void);

#endif
