// SPDX-License-Identifier: MIT
// guard.h: START HERE. Blocks that lie at the end or the begin of pages of their own, with pages without access around.
//
// A stretch of address space is cut into slots, one behind the other: the pages of a block, and a page without access.
// So in front of each slot is a page without access, too. A freed slot has no access at all and no memory; its address
// is not used again until all the space has been used, and what is known of the block is kept as long. So any access
// beyond a block's pages, or after its end, is a fault, at the instruction that does it (os/faults.h).
//
// Pages lose access in one of two ways. Linux 6.13 marks pages, which costs no mapping. Elsewhere each live slot is a
// mapping of its own, and half of those that the process may have are left to the program.
//
// A kernel that refuses makes fewer guarded blocks: the caller gets NULL and takes another one. A free whose guard is
// refused leaves a slot that is never used again.
//
// Threads: all functions. One lock; none is taken within it. A signal handler that interrupted a call gets NULL.
#ifndef QY_GUARD_GUARD_H
#define QY_GUARD_GUARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "guard/slots.h"
#include "rt/lock.h"

typedef enum qy_guard_way {
    QY_GUARD_BEST,     // marks where the kernel has them
    QY_GUARD_PROTECT,  // mprotect
} qy_guard_way_t;

typedef struct qy_guard_limits {
    size_t space;    // bytes of address space; less is taken where there is not so much
    uint32_t slots;  // of which something is known, live and freed
    size_t live;     // bytes of pages that live blocks may have
    qy_guard_way_t way;
    // What is done to the pages of a new block before anybody can find it: a fork may come at any time. NULL: nothing.
    void (*prepare)(uintptr_t block, size_t n);
} qy_guard_limits_t;

typedef enum qy_guard_side {
    QY_GUARD_BEHIND,  // the block ends where the page without access begins, as far as its alignment allows
    QY_GUARD_BEFORE,  // it begins behind one
    QY_GUARD_TURNS,   // one after the other, behind first
} qy_guard_side_t;

typedef struct qy_guard_block {
    uintptr_t address;
    size_t size;
    qy_guard_note_t born, died;
    uint64_t tag;   // the caller's own
    uint32_t slot;  // its number, below the limit: for what a caller knows besides
    bool freed;
} qy_guard_block_t;

// Once. False: no memory or address space, or it was started before; then nothing has changed. `limits` are what is
// wanted. Without a start all calls do nothing.
bool qy_guard_start(const qy_guard_limits_t *limits);
// Do pages lose access without a mapping?
bool qy_guard_is_by_marks(void);

// A block of n bytes, of a multiple of `align`, a power of two up to the page size. *ret_zero: it is zero.
// NULL: the limits are reached, or the kernel refuses. `slot`: its number.
void *qy_guard_alloc(size_t align, size_t n, qy_guard_side_t side, const qy_guard_note_t *born, uint64_t tag,
    bool *ret_zero, uint32_t *ret_slot);

typedef enum qy_guard_answer {
    QY_GUARD_DONE,
    QY_GUARD_FREED,     // it was freed before
    QY_GUARD_INTERIOR,  // it is no block's begin
} qy_guard_answer_t;
// p lies in the space. *ret_block: the block that p is in or nearest to, before the call; its address is 0 if nothing
// is known.
qy_guard_answer_t qy_guard_free(void *p, const qy_guard_note_t *died, qy_guard_block_t *ret_block);

// What a wrong access that begins at `address` did to the block there, or to the nearest: a word that does not change
// (docs/check.md).
typedef enum qy_guard_access { QY_GUARD_READ,
    QY_GUARD_WRITE,
    QY_GUARD_UNKNOWN } qy_guard_access_t;
const char *qy_guard_kind(const qy_guard_block_t *b, uintptr_t address, qy_guard_access_t access);

extern QY_HIDDEN _Atomic(uintptr_t) qy_guard_base;  // 0: not started
extern QY_HIDDEN size_t qy_guard_bytes;             // constant once there is a base
QY_INLINE bool qy_guard_is_near(const void *p) {
    uintptr_t base = atomic_load_explicit(&qy_guard_base, memory_order_acquire);
    return QY_UNLIKELY(base != 0) && (uintptr_t)p - base < qy_guard_bytes;
}

// The block at an address, or the nearest one where the address is between two. Takes no lock: what changes at this
// moment may be told half. False: nothing is known.
bool qy_guard_find(uintptr_t address, qy_guard_block_t *ret);
// Does [address, address + n) lie within one live block? A few instructions, no lock. Of a block that is freed at this
// moment either may be said.
bool qy_guard_has(uintptr_t address, size_t n);
// The page at `address` gets access, so that a program that did something wrong there goes on. False: refused.
bool qy_guard_open(uintptr_t address);
// All live blocks, until visit says no. No locks: for a stopped world, or a forked child.
void qy_guard_each_live(bool (*visit)(const qy_guard_block_t *b, void *arg), void *arg);

typedef struct qy_guard_stats {
    uint64_t made, refused;  // blocks; those for which there was no slot
    uint64_t stuck;          // slots that are lost, since their guard was refused
    size_t live_bytes;       // of pages
    uint32_t live, slots;    // blocks now; slots of which something is known
    uint32_t turns;          // how often the space was used up
} qy_guard_stats_t;
void qy_guard_get_stats(qy_guard_stats_t *ret);

// Of these what statistics need, at any time.
void qy_guard_get_live(size_t *ret_blocks, size_t *ret_bytes);

qy_lock_t *qy_guard_lock(void);  // for a fork

#endif
