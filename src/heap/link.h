// SPDX-License-Identifier: MIT
// link.h: the link in a free block, hidden and signed. See qy_block_t in types.h.
#ifndef QY_HEAP_LINK_H
#define QY_HEAP_LINK_H

#include "heap/types.h"
#include "rt/diag.h"

// Secrets of the process. Neither the link nor the mark is in memory as it is, so who reads free blocks learns no
// address of the heap, nor how to mark another link:
//
//   link   next + hide. The upper 16 bits of `hide` are QY_LINK_TOP, and addresses have none there: so the link of a
//          free block says at once that it may be one, which is all that free() has to ask.
//   mark   x = (address + link) * mix xor address;  both halves of x * fold, xor'ed.
//
// A sum or one product could be solved for its secrets: from one block where what it multiplies is known, from a few in
// a row bit by bit. The address comes in twice, once in a product whose other factor is unknown, so neighbours' x have
// no known difference, and each bit of the mark depends on all of x. It is no cipher: who may choose what is freed in
// which order, reads at least four marks whose (address + link) is the same, and solves for them, can forge one.
//
// A free block that the sampler chose (draw.h) has its mark xor `chosen` instead, whose low bits then say at which
// rate. To pop it the fast path does not suffice. To all others it is a free block like any other: each test but that
// of the fast path takes both marks.
typedef struct qy_link_keys {
    uint64_t hide, mix, fold;  // [const] after start-up; never 0
    uint64_t chosen;           // [const] likewise; the low bits are 0
} qy_link_keys_t;
extern QY_HIDDEN qy_link_keys_t qy_link;

// In no address, no text of UTF-8, and no common number.
#define QY_LINK_TOP UINT64_C(0xFBF8)

// In memory the last block of a list links here: a block that is never free, all zero. So who pops may read what a head
// points to without a question. Everywhere else the end of a list is NULL.
extern QY_HIDDEN qy_block_t qy_link_end;  // [const]

__extension__ typedef unsigned __int128 qy_link_product_t;
QY_INLINE uint64_t qy_link_mark(const qy_block_t *b, uint64_t link) {
    uint64_t x = ((uintptr_t)b + link) * qy_link.mix ^ (uintptr_t)b;
    qy_link_product_t product = (qy_link_product_t)x * qy_link.fold;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}
QY_INLINE qy_block_t *qy_link_shown(uint64_t link) { return (qy_block_t *)(uintptr_t)(link - qy_link.hide); }

// The same with the end as it is in memory.
QY_INLINE void qy_link_put(qy_block_t *b, const qy_block_t *next) {
    uint64_t link = (uintptr_t)next + qy_link.hide;
    b->link = link;
    b->mark = qy_link_mark(b, link);
}
QY_INLINE void qy_link_set(qy_block_t *b, const qy_block_t *next) { qy_link_put(b, next ? next : &qy_link_end); }

// Is this the mark of a free block at b with this link, which was not chosen? The one test of the fast path; how both
// words are loaded is the caller's business.
QY_INLINE bool qy_link_is_marked(const qy_block_t *b, uint64_t link, uint64_t mark) {
    return mark == qy_link_mark(b, link);
}

// What a wrong link means. Which of the two it was cannot be known here.
#define QY_LINK_WRITTEN "written to after it was freed, or by an overflow of the block before"

// What is there beyond the usual mark: 0, or of a chosen block what makes it one; of all else anything.
#define QY_LINK_RATES 64u

QY_INLINE uint64_t qy_link_excess(const qy_block_t *b, uint64_t link, uint64_t mark) {
    return mark ^ qy_link_mark(b, link);
}
QY_INLINE bool qy_link_excess_is_right(uint64_t excess) {
    return excess == 0 || (excess ^ qy_link.chosen) < QY_LINK_RATES;
}
QY_INLINE uint64_t qy_link_excess_of(unsigned rate) { return qy_link.chosen | rate; }

// Does the block carry the mark of a free one?
QY_INLINE bool qy_link_valid(const qy_block_t *b) {
    return qy_link_excess_is_right(qy_link_excess(b, b->link, b->mark));
}

// Of a free block: was it chosen, and at which rate?
QY_INLINE bool qy_link_is_chosen(const qy_block_t *b, unsigned *ret_rate) {
    uint64_t excess = qy_link_excess(b, b->link, b->mark);
    *ret_rate = (unsigned)(excess % QY_LINK_RATES);
    return (excess ^ qy_link.chosen) < QY_LINK_RATES;
}
// A free block is chosen from here on, or is not. It is verified: a mark that is made anew must not hide that it was
// written to.
QY_INLINE void qy_link_choose(qy_block_t *b, bool chosen, unsigned rate) {
    if (QY_UNLIKELY(!qy_link_valid(b))) qy_fatal(QY_FAULT_CORRUPT_LINK, b, QY_LINK_WRITTEN);
    b->mark = qy_link_mark(b, b->link) ^ (chosen ? qy_link_excess_of(rate) : 0);
}

// Might it? Never false of one that is free and was not written to. True of one in 65,536 in use, if what they hold is
// random.
QY_INLINE bool qy_link_may_be(const qy_block_t *b) {
#if defined(__x86_64__)
    uint16_t top;  // one instruction; addresses have 47 bits, so nothing is carried into it
    __builtin_memcpy(&top, (const char *)b + 6, sizeof top);
    return top == QY_LINK_TOP;
#else
    return b->link >> 49 == QY_LINK_TOP >> 1;
#endif
}

// The next block of a list, verified before it is followed.
QY_INLINE qy_block_t *qy_link_next(const qy_block_t *b) {
    if (QY_UNLIKELY(!qy_link_valid(b))) qy_fatal(QY_FAULT_CORRUPT_LINK, b, QY_LINK_WRITTEN);
    qy_block_t *next = qy_link_shown(b->link);
    return next == &qy_link_end ? NULL : next;
}

// The next block (&qy_link_end behind the last), if the link is intact: for who walks the list of another thread, which
// may be at work.
QY_UNSANITIZED QY_INLINE bool qy_link_try(const qy_block_t *b, const qy_block_t **ret_next) {
    uint64_t mark = *(const volatile uint64_t *)&b->mark, link = *(const volatile uint64_t *)&b->link;
    *ret_next = qy_link_shown(link);
    return qy_link_excess_is_right(qy_link_excess(b, link, mark));
}

// The next block, verified already, on a walk: it is guessed from where this one lay from the one before, *step bytes.
// The processor goes on from the guess while it waits for the link, so a walk through blocks in order does not wait for
// each.
QY_INLINE qy_block_t *qy_link_step(qy_block_t *b, ptrdiff_t *step) {
    char *next = (char *)qy_link_shown(b->link), *guess = (char *)b + *step, *same = guess;
    __asm__(""
            : "+r"(same));  // else the compiler takes `next` for the guess, since they are equal
    if (QY_LIKELY(next == same)) return (qy_block_t *)guess;
    *step = next - (char *)b;
    return (qy_block_t *)next;
}

#endif
