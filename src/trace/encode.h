// SPDX-License-Identifier: MIT
// encode.h: the fields of a record.
//
// Each function writes at `at` and returns where the next field goes. Up to eight bytes behind that are overwritten
// with zeros: room for a record is QY_RECORD_MOST, which counts them.
#ifndef QY_TRACE_ENCODE_H
#define QY_TRACE_ENCODE_H

#include <string.h>

#include "base/compiler.h"
#include "trace/format.h"

// The longest record without a text: a tag, six varints of 10 bytes, and what the last one overwrites.
#define QY_RECORD_MOST ((size_t)72)

// Room that a block keeps behind that, for what is told of its thread when the thread writes no more: its name, or that
// it is gone.
#define QY_LAST_MOST ((size_t)32)

QY_INLINE uint64_t qy_zigzag(int64_t x) { return (uint64_t)x << 1 ^ (uint64_t)(x >> 63); }

QY_INLINE uint8_t *qy_put_tag(uint8_t *at, unsigned op, unsigned variant) {
    *at = (uint8_t)(op | variant << 4);
    return at + 1;
}

QY_COLD static uint8_t *qy_put_long(uint8_t *at, uint64_t v) {
    for (; v > 0x7f; v >>= 7) *at++ = (uint8_t)(v | 0x80);
    *at++ = (uint8_t)v;
    return at;
}

// Up to 56 bits without a branch: they are spread to eight bytes of seven, in three steps, and the bits that
// say "another follows" are cut to length.
QY_INLINE uint8_t *qy_put(uint8_t *at, uint64_t v) {
    if (QY_UNLIKELY(v >> 56)) return qy_put_long(at, v);
    unsigned bytes = (70 - (unsigned)__builtin_clzll(v | 1)) * 37 >> 8;  // ceil(bits / 7), for up to 64 bits
    uint64_t x = (v & 0x000000000fffffffu) | (v & 0x00fffffff0000000u) << 4;
    x = (x & 0x00003fff00003fffu) | (x & 0x0fffc0000fffc000u) << 2;
    x = (x & 0x007f007f007f007fu) | (x & 0x3f803f803f803f80u) << 1;
    x |= 0x8080808080808080u >> (64 - 8 * (bytes - 1)) % 64 & (bytes > 1 ? ~UINT64_C(0) : 0);
    memcpy(at, &x, sizeof x);
    return at + bytes;
}

// An address as the difference from the last one of its kind. Most are multiples of 16: their low bits
// are not stored.
QY_INLINE uint8_t *qy_put_address(uint8_t *at, uint64_t *previous, uint64_t a) {
    uint64_t last = *previous, low = a & 15;
    *previous = a - low;
    int64_t d = (int64_t)(a - last);
    return qy_put(at, low ? qy_zigzag(d) << 1 | 1 : qy_zigzag(d >> 4) << 1);
}

// The sum over a payload, see the format.
static inline uint64_t qy_trace_sum(const void *payload, size_t bytes) {
    const uint8_t *at = payload;
    uint64_t h = UINT64_C(0xcbf29ce484222325), w;
    for (; bytes; at += sizeof w) {
        size_t n = bytes < sizeof w ? bytes : sizeof w;
        w = 0;
        if (n == sizeof w) memcpy(&w, at, sizeof w);
        else memcpy(&w, at, n);
        h = (h ^ w) * UINT64_C(0x100000001b3);
        h ^= h >> 32;
        bytes -= n;
    }
    return h;
}

#endif
