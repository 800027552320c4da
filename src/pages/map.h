// SPDX-License-Identifier: MIT
// map.h: from an address to what is there. Two flat sparse tables that lie back to back:
//
//   tag[(p >> 12) & mask]    uint64 for each 4 KiB: (owner | purged << 7 | class) ^ p >> 12 where blocks of a slab
//                            begin; else 0. The one load free() needs to know "mine, and of which class".
//   record[((p >> 12) & mask) >> 9]  the record at p, counted down from the first tag; slow paths only, exact.
//
// The tables are masked, not sized for the whole address space: arenas may lie anywhere as long as no two chunks of
// units share an entry, which qy_map_add refuses (the caller takes another address). So one binary serves 39 to 57 bits
// of address. Huge objects have no tags: they may share an entry, with others and with units, as a chain of records. A
// *foreign* pointer that shares its entry with a slab is told by its own bits: they take part in the tag, all from bit
// 12 on. Where no block of a slab was given out yet, there is no tag either. Unwritten parts are read-only zero pages:
// they cost nothing and free(NULL) may read them.
//
// Growing. There is no table before the first chunk. Then there is one for 32 MiB; and one four times as large when
// chunks of units collide, with everything in its new place. Readers take no lock. These rules make each pair of words
// that a reader can load right:
//  - The pointer is stored before the mask, and loaded after it: a new mask never meets an old table, which is shorter.
//  - An old mask may meet a new table. What lies there has another address in its tag, or in its record. So it is taken
//    for nothing, and the slow path looks again, at last under the lock (qy_map_find).
//  - An old table stays mapped for ever, without memory: it reads as zero, which leads to the slow path, too.
//  - Whoever was told of a block was told after its tag was stored: with the words he loads he finds that tag, or a
//    newer one, or nothing.
// No write may fall between the copy and the new words. Chunks come and go under the map's lock. Who writes tags takes
// no lock; he looks at the version, writes, and looks again: if a table was being made meanwhile, he writes once more,
// under the lock.
#ifndef QY_PAGES_MAP_H
#define QY_PAGES_MAP_H

#include "pages/types.h"

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
#define QY_TAG_NO_OWNER (UINT64_C(1) << 62)        // the key without a cache: it leaves a class with no tag or address

// The owner's bits of the heap with this number, 1...: counted from the top down, where addresses have no bits, so that
// two owners' difference is none of two addresses.
#define QY_HEAP_ID_MAX ((1u << 21) - 1)
QY_INLINE qy_tag_t qy_tag_owner(uint32_t id) {
    qy_tag_t bits = 0;
    for (unsigned i = 0; i < 21; i++) bits |= (qy_tag_t)(id >> i & 1) << (61 - i);
    return bits | QY_TAG_SLAB;
}

// Does the processor load in the order of the program?
#if defined(__x86_64__) && !QY_TSAN
#define QY_MAP_IN_ORDER 1
#else
#define QY_MAP_IN_ORDER 0
#endif

// Words of their own, not in a struct: free() reaches each in one instruction.
extern QY_HIDDEN qy_tag_t *qy_map_tags;  // the first tag; one that is 0 before there is a table
extern QY_HIDDEN size_t qy_map_mask;     // entries - 1

// The index of p's tag. The mask is loaded here, before whatever the caller loads.
QY_INLINE size_t qy_map_index(const void *p) {
    size_t i = (uintptr_t)p >> QY_TAG_SHIFT;
    if (!QY_MAP_IN_ORDER) return i & __atomic_load_n(&qy_map_mask, __ATOMIC_ACQUIRE);
    i &= qy_map_mask;  // not by an atomic load, which would be an instruction more
    __asm__ volatile(""
                     : "+r"(i)
                     :
                     : "memory");  // the compiler keeps the order, too
    return i;
}

// The tag at p if there is one for this address; else something that differs from each owner's by more than
// QY_TAG_CLASS.
QY_INLINE qy_tag_t qy_map_look(const void *p) {
    qy_tag_t page = (uintptr_t)p >> QY_TAG_SHIFT;
    size_t i = qy_map_index(p);
#if QY_TSAN
    return __atomic_load_n(&__atomic_load_n(&qy_map_tags, __ATOMIC_RELAXED)[i], __ATOMIC_RELAXED) ^ page;
#else
    return qy_map_tags[i] ^ page;  // as one instruction, which no atomic load becomes
#endif
}
// The same without a riddle: 0 if there is none.
QY_INLINE qy_tag_t qy_map_tag(const void *p) {
    qy_tag_t tag = qy_map_look(p);
    return (tag & (QY_TAG_SLAB | QY_TAG_OTHERS)) == QY_TAG_SLAB && (uint64_t)(uintptr_t)p >> 52 == 0 ? tag : 0;
}
// The same, while no table can be replaced: who looks at that very moment may find none. Takes the lock.
qy_tag_t qy_map_tag_now(const void *p);
// Tag each page of [from, from + bytes), which are of one chunk and nobody else's to tag; 0: with none.
void qy_map_set_tags(const char *from, size_t bytes, qy_tag_t tag);

// Where the record of the 2 MiB with tag i is.
QY_INLINE _Atomic(qy_map_record_t *) *qy_map_slot(qy_tag_t *tags, size_t i) {
    return (_Atomic(qy_map_record_t *) *)(void *)tags - 1 - (i >> (QY_CHUNK_SHIFT - QY_TAG_SHIFT));
}

// Enter a record at `base`, which is its base from then on; if `units`, its tags can be written to.
typedef enum qy_map_answer {
    QY_MAP_ADDED,
    QY_MAP_TAKEN,      // units only: others have the entry, and the map could not grow enough. Take another address
    QY_MAP_NO_MEMORY,  // for the first table, or for tags that can be written to
} qy_map_answer_t;
qy_map_answer_t qy_map_add(qy_map_record_t *record, char *base, bool units);
// Take it out, if it is there.
void qy_map_remove(qy_map_record_t *record);
// Both are entered: `record` leaves its base for that of `other`, which leaves the map.
void qy_map_replace(qy_map_record_t *other, qy_map_record_t *record);

// Does p lie in the first 2 MiB from the record's base? Also of a record that is in another entry, or in none.
QY_INLINE bool qy_map_record_holds(const qy_map_record_t *record, const void *p) {
    return ((uintptr_t)p & ~(QY_CHUNK - 1)) == (uintptr_t)__atomic_load_n(&record->base, __ATOMIC_RELAXED);
}

// The exact look, for a thread that did not find p's record first in its entry. Takes the lock.
qy_map_record_t *qy_map_find(const void *p);

// The record whose 2 MiB hold p, or NULL. Exact. May be called on any value of p.
QY_INLINE qy_map_record_t *qy_map_record(const void *p) {
    size_t i = qy_map_index(p);
    qy_tag_t *tags = __atomic_load_n(&qy_map_tags, __ATOMIC_RELAXED);
    qy_map_record_t *record = atomic_load_explicit(qy_map_slot(tags, i), memory_order_acquire);
    return QY_LIKELY(record && qy_map_record_holds(record, p)) ? record : qy_map_find(p);
}

// The chunk of units that holds p, or NULL.
QY_INLINE qy_chunk_t *qy_map_chunk(const void *p) {
    qy_map_record_t *record = qy_map_record(p);
    bool units = record && atomic_load_explicit(&record->kind, memory_order_relaxed) == QY_RECORD_UNITS;
    return QY_LIKELY(units) ? (qy_chunk_t *)record : NULL;
}

// The span at p, which lies in the chunk; NULL: a free unit.
QY_INLINE qy_slab_t *qy_chunk_span(const qy_chunk_t *chunk, const void *p) {
    return atomic_load_explicit(&chunk->span[((uintptr_t)p & (QY_CHUNK - 1)) >> QY_UNIT_SHIFT], memory_order_acquire);
}

// Is each record in the entry of its base, and are they counted right? NULL, or what is wrong. Takes the lock.
const char *qy_map_check(void);

qy_lock_t *qy_map_lock(void);  // for fork.c

// Bytes of the tags that are writable (and so may be touched).
size_t qy_map_bytes(void);
// Where the tables are, those that were replaced too. Takes the lock.
void qy_map_each(void (*fn)(const void *base, size_t bytes, void *arg), void *arg);

// Test builds: bytes of tags of the first table, 64 KiB at least; 0: as ever.
extern size_t qy_map_fake_first;

#endif
