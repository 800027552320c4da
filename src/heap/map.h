// SPDX-License-Identifier: MIT
// map.h: from an address to what is there. Two flat sparse tables, reserved once:
//
//   tag[(p >> 12) & mask]    uint64 for each 4 KiB: (owner | purged << 7 | class) ^ p >> 12 where blocks of a slab begin; else 0.
//                            The one load free() needs to know "mine, and of which class".
//   chunks[(p >> 21) & ...]  the chunk record at p; slow paths only, exact (the record knows its base).
//
// The tables are masked, not sized for the whole address space: arenas may lie anywhere as long as
// no two chunks share an entry, which qy_map_add refuses (the caller takes another address). So one
// binary serves 39 to 57 bits of address, and a process limited to 256 MiB pays 4 MiB. A *foreign* pointer that shares
// its entry with a slab is told by its own bits: they take part in the tag, all from bit 12 on.
// Where no block of a slab was given out yet, there is no tag either.
// Unwritten parts are read-only zero pages: they cost nothing and free(NULL) may read them.
#ifndef QY_HEAP_MAP_H
#define QY_HEAP_MAP_H

#include "heap/types.h"

// A tag: the owner's bits, 40 to 63; zeros; the purged bit; the class.
typedef uint64_t qy_tag_t;
#define QY_TAG_SHIFT 12
#define QY_TAG_PAGE ((size_t)1 << QY_TAG_SHIFT)
#define QY_CHUNK_TAGS ((unsigned)(QY_CHUNK >> QY_TAG_SHIFT))
// Set in the tags of a slab of which some blocks are purged: their marks are gone with their pages, so
// every free in such a slab takes the slow path, which looks at the slab's own record of them.
#define QY_TAG_PURGED 0x80u
#define QY_TAG_CLASS 0x7Fu
// A bit of the owner, so that a freer knows from the tag that it must take the heap's lock.
#define QY_TAG_FIRST_CLASS (UINT64_C(1) << 40)
#define QY_TAG_OTHERS (UINT64_C(0xFFFFFFFF) << 8)  // zero, unless the address is another one with the same entry
#define QY_TAG_SLAB (UINT64_C(1) << 63)            // in all tags, and in no address
#define QY_TAG_NO_OWNER (UINT64_C(1) << 62)        // the key of who has no cache: with no tag, and with no address, it leaves a class

// The owner's bits of the heap with this number, 1...: counted from the top down, where addresses have no bits, so that two owners'
// difference is none of two addresses.
#define QY_HEAP_ID_MAX ((1u << 21) - 1)
QY_INLINE qy_tag_t qy_tag_owner(uint32_t id) {
    qy_tag_t bits = 0;
    for (unsigned i = 0; i < 21; i++) bits |= (qy_tag_t)(id >> i & 1) << (61 - i);
    return bits | QY_TAG_SLAB;
}

// Words of their own, not in the struct below: free() reaches each in one instruction.
extern QY_HIDDEN qy_tag_t *qy_map_tags;
extern QY_HIDDEN size_t qy_map_mask;  // entries - 1

typedef struct qy_map {
    _Atomic(qy_chunk_t *) *chunks;
    size_t chunk_mask;
} qy_map_t;

extern QY_HIDDEN qy_map_t qy_map;  // [const] after qy_map_init; before it, one zero entry: everything is unknown

bool qy_map_init(void);

// The tag at p if there is one for this address; else something that differs from each owner's by more than QY_TAG_CLASS.
QY_INLINE qy_tag_t qy_map_look(const void *p) {
    qy_tag_t page = (uintptr_t)p >> QY_TAG_SHIFT;
#if QY_TSAN
    return __atomic_load_n(&qy_map_tags[page & qy_map_mask], __ATOMIC_RELAXED) ^ page;
#else
    return qy_map_tags[page & qy_map_mask] ^ page;  // as one instruction, which no atomic load becomes
#endif
}
// The same without a riddle: 0 if there is none.
QY_INLINE qy_tag_t qy_map_tag(const void *p) {
    qy_tag_t tag = qy_map_look(p);
    return (tag & (QY_TAG_SLAB | QY_TAG_OTHERS)) == QY_TAG_SLAB && (uint64_t)(uintptr_t)p >> 52 == 0 ? tag : 0;
}
// tag: 0 for none.
QY_INLINE void qy_map_set_tag(const char *at, qy_tag_t tag) {
    qy_tag_t page = (uintptr_t)at >> QY_TAG_SHIFT;
    __atomic_store_n(&qy_map_tags[page & qy_map_mask], tag ? tag ^ page : 0, __ATOMIC_RELAXED);
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
