// SPDX-License-Identifier: MIT
// filling.h: bytes by which a checked pool sees that memory was written to: canaries beside a block, and what a new or
// an ended block is filled with. Written and compared 16 bytes at a time, since each operation of a checked pool does
// both.
//
// Of a large block only both edges and a part between are filled, QY_FILLED bytes each: so the cost of a block is
// bounded. Where that part lies follows from the block's address.
#ifndef QY_POOL_FILLING_H
#define QY_POOL_FILLING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"
#include "base/num.h"

#define QY_FILLED ((size_t)4096)

typedef uint64_t qy_fill_words_t __attribute__((vector_size(16)));
typedef qy_fill_words_t qy_fill_at_t __attribute__((aligned(1), may_alias));

QY_INLINE void qy_fill_16(unsigned char *p, unsigned char byte) {
    *(qy_fill_at_t *)p = (qy_fill_words_t){0} + byte * UINT64_C(0x0101010101010101);
}

// Never by memset: under quarry check that is a function that looks at what the program does to blocks.
QY_INLINE void qy_fill(unsigned char *p, size_t bytes, unsigned char byte) {
    const qy_fill_words_t words = (qy_fill_words_t){0} + byte * UINT64_C(0x0101010101010101);
    if (bytes < sizeof words) {
        for (unsigned char *end = p + bytes; p < end; p++) {
            *p = byte;
            __asm__(""
                    : "+r"(p));  // no call of memset for the loop
        }
        return;
    }
    unsigned char *last = p + bytes - sizeof words;
    *(qy_fill_at_t *)last = words;
    for (; p + sizeof words < last; p += 2 * sizeof words) {
        *(qy_fill_at_t *)p = words;
        *(qy_fill_at_t *)(p + sizeof words) = words;
        __asm__(""
                : "+r"(p));
    }
    if (p < last) *(qy_fill_at_t *)p = words;
}

// The bits of 16 bytes at p in which they are not all `byte`.
QY_INLINE qy_fill_words_t qy_fill_differs(const unsigned char *p, unsigned char byte) {
    qy_fill_words_t words;
    memcpy(&words, p, sizeof words);
    return words ^ byte * UINT64_C(0x0101010101010101);
}

QY_INLINE bool qy_is_filled(const unsigned char *p, size_t bytes, unsigned char byte) {
    if (bytes < 16) {
        while (bytes && p[bytes - 1] == byte) bytes--;
        return bytes == 0;
    }
    qy_fill_words_t differs = qy_fill_differs(p + bytes - 16, byte);
    const unsigned char *last = p + bytes - 16;
    while (p + 16 < last) {
        differs |= qy_fill_differs(p, byte) | qy_fill_differs(p + 16, byte);
        p += 32;
        __asm__(""
                : "+r"(p));  // where it ends is not to be computed apart
    }
    if (p < last) differs |= qy_fill_differs(p, byte);
    return !(differs[0] | differs[1]);
}

// Of a block of more than 3 * QY_FILLED bytes: where its part 0, 1 or 2 begins.
size_t qy_filled_part(const unsigned char *p, size_t bytes, unsigned part);
// Of a block: see above.
void qy_fill_large(unsigned char *p, size_t bytes, unsigned char byte);
bool qy_is_filled_large(const unsigned char *p, size_t bytes, unsigned char byte);

QY_INLINE void qy_fill_block(unsigned char *p, size_t bytes, unsigned char byte) {
    if (QY_LIKELY(bytes <= 3 * QY_FILLED)) qy_fill(p, bytes, byte);
    else qy_fill_large(p, bytes, byte);
}
QY_INLINE bool qy_is_filled_block(const unsigned char *p, size_t bytes, unsigned char byte) {
    return QY_LIKELY(bytes <= 3 * QY_FILLED) ? qy_is_filled(p, bytes, byte) : qy_is_filled_large(p, bytes, byte);
}

#endif
