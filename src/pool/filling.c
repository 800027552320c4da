// SPDX-License-Identifier: MIT
// filling.c: see filling.h.
#include "pool/filling.h"

size_t qy_filled_part(const unsigned char *p, size_t bytes, unsigned part) {
    if (part != 1) return part ? bytes - QY_FILLED : 0;
    uint64_t h = (uintptr_t)p * UINT64_C(0x9E3779B97F4A7C15) >> 32;
    return QY_FILLED + qy_round_down(h % (bytes - 3 * QY_FILLED), 16);
}

QY_NOINLINE void qy_fill_large(unsigned char *p, size_t bytes, unsigned char byte) {
    for (unsigned i = 0; i < 3; i++) qy_fill(p + qy_filled_part(p, bytes, i), QY_FILLED, byte);
}

QY_NOINLINE bool qy_is_filled_large(const unsigned char *p, size_t bytes, unsigned char byte) {
    for (unsigned i = 0; i < 3; i++)
        if (!qy_is_filled(p + qy_filled_part(p, bytes, i), QY_FILLED, byte)) return false;
    return true;
}
