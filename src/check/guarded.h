// SPDX-License-Identifier: MIT
// guarded.h: blocks beside pages without access (guard/guard.h), as the rest of check sees them.
#ifndef QY_CHECK_GUARDED_H
#define QY_CHECK_GUARDED_H

#include "check/check.h"
#include "guard/guard.h"

// What a slot's tag says: the family, the logarithm of the alignment that operator new was given, and the ordinal.
QY_INLINE uint64_t qy_check_guarded_tag(qy_check_family_t family, unsigned align_log2, uint64_t ordinal) {
    return (uint64_t)family | (uint64_t)align_log2 << 8 | ordinal << 16;
}
QY_INLINE unsigned qy_check_guarded_align(uint64_t tag) { return tag >> 8 & 255; }

qy_check_block_t qy_check_guarded_block(const qy_guard_block_t *g);
// The block at the address, or nearest to it. False: nothing is known there.
bool qy_check_guarded_find(uintptr_t address, qy_check_block_t *ret);
void qy_check_guarded_each_live(bool (*visit)(const qy_check_block_t *b, void *arg), void *arg);
// The access of an interposed function: reported if it does not stay in a live block. What it meets is accessible then.
void qy_check_guarded_access(uintptr_t at, size_t n, bool is_write, const char *function);

// Faults at guarded blocks are reported from now on. False: denied.
bool qy_check_guarded_begin(void);

#endif
