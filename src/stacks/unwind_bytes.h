// SPDX-License-Identifier: MIT
// unwind_bytes.h: reading numbers from bytes that nobody vouches for.
//
// A reader has an end and never passes it. A number that is not there or does not fit reads as 0 and
// sets `bad`, which stays; so a function reads all it wants and asks once.
#ifndef QY_STACKS_UNWIND_BYTES_H
#define QY_STACKS_UNWIND_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

typedef struct qy_bytes {
    const uint8_t *at, *end;
    bool bad;
} qy_bytes_t;

static inline size_t qy_bytes_left(const qy_bytes_t *b) { return b->bad ? 0 : (size_t)(b->end - b->at); }

static inline const uint8_t *qy_bytes_take(qy_bytes_t *b, uint64_t n) {
    if (QY_UNLIKELY(n > qy_bytes_left(b))) {
        b->bad = true;
        return NULL;
    }
    const uint8_t *at = b->at;
    b->at += n;
    return at;
}

// Little-endian, of 1 to 8 bytes.
static inline uint64_t qy_bytes_uint(qy_bytes_t *b, unsigned bytes) {
    const uint8_t *at = qy_bytes_take(b, bytes);
    uint64_t value = 0;
    for (unsigned i = 0; at && i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static inline int64_t qy_bytes_int(qy_bytes_t *b, unsigned bytes) {
    unsigned shift = (64 - 8 * bytes) & 63;
    return (int64_t)(qy_bytes_uint(b, bytes) << shift) >> shift;
}

// Seven bits a byte; what exceeds 64 bits is dropped.
static inline uint64_t qy_bytes_leb(qy_bytes_t *b, bool is_signed) {
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        uint64_t byte = qy_bytes_uint(b, 1);
        if (b->bad || shift > 70) {
            b->bad = true;
            return 0;
        }
        if (shift < 64) value |= (byte & 0x7f) << shift;
        if (byte & 0x80) continue;
        if (is_signed && (byte & 0x40) && shift + 7 < 64) value |= ~(uint64_t)0 << (shift + 7);
        return value;
    }
}

static inline uint64_t qy_bytes_uleb(qy_bytes_t *b) { return qy_bytes_leb(b, false); }
static inline int64_t qy_bytes_sleb(qy_bytes_t *b) { return (int64_t)qy_bytes_leb(b, true); }

#endif
