// SPDX-License-Identifier: MIT
// link.h: the link in a free block, signed. See qy_block_t in types.h.
#ifndef QY_HEAP_LINK_H
#define QY_HEAP_LINK_H

#include "heap/types.h"
#include "rt/diag.h"

extern QY_HIDDEN uintptr_t qy_link_secret;  // [const] after start-up

// In memory the last block of a list links here: a block that is never free, all zero. So who pops may read what a head points to
// without a question. Everywhere else the end of a list is NULL.
extern QY_HIDDEN qy_block_t qy_link_end;  // [const]

QY_INLINE void qy_link_set(qy_block_t *b, qy_block_t *next, uintptr_t secret) {
    if (!next) next = &qy_link_end;
    b->next = next;
    b->mark = (uintptr_t)next + (uintptr_t)b + secret;
}
// Does the block carry the mark of a free one?
QY_INLINE bool qy_link_valid(const qy_block_t *b, uintptr_t secret) {
    return b->mark == (uintptr_t)b->next + (uintptr_t)b + secret;
}
// The next block of a list, verified before it is followed.
QY_INLINE qy_block_t *qy_link_next(const qy_block_t *b) {
    if (QY_UNLIKELY(!qy_link_valid(b, qy_link_secret))) qy_fatal(QY_FAULT_CORRUPT_LINK, b, "written to after it was freed");
    return b->next == &qy_link_end ? NULL : b->next;
}

// The next block, verified already, on a walk: it is guessed from where this one lay from the one before, *step bytes. The processor goes
// on from the guess while it waits for the link, so a walk through blocks in order does not wait for each.
QY_INLINE qy_block_t *qy_link_step(qy_block_t *b, ptrdiff_t *step) {
    char *next = (char *)b->next, *guess = (char *)b + *step, *same = guess;
    __asm__(""
            : "+r"(same));  // else the compiler takes `next` for the guess, since they are equal
    if (QY_LIKELY(next == same)) return (qy_block_t *)guess;
    *step = next - (char *)b;
    return (qy_block_t *)next;
}

#endif
