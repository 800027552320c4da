// SPDX-License-Identifier: MIT
// filling.c: see filling.h.
#include "pool/filling.h"

// Where the part between the edges begins.
static size_t between(const unsigned char *p, size_t bytes) {
    uint64_t h = (uintptr_t)p * UINT64_C(0x9E3779B97F4A7C15) >> 32;
    return QY_FILLED + qy_round_down(h % (bytes - 3 * QY_FILLED), 16);
}

QY_NOINLINE void qy_fill_large(unsigned char *p, size_t bytes, unsigned char byte) {
    memset(p, byte, QY_FILLED);
    memset(p + between(p, bytes), byte, QY_FILLED);
    memset(p + bytes - QY_FILLED, byte, QY_FILLED);
}

QY_NOINLINE bool qy_is_filled_large(const unsigned char *p, size_t bytes, unsigned char byte) {
    return qy_is_filled(p, QY_FILLED, byte) && qy_is_filled(p + between(p, bytes), QY_FILLED, byte) &&
           qy_is_filled(p + bytes - QY_FILLED, QY_FILLED, byte);
}
