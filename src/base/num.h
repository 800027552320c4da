// SPDX-License-Identifier: MIT
// num.h: powers of two, rounding, checked products. All compile to a few instructions.
#ifndef QY_BASE_NUM_H
#define QY_BASE_NUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool qy_is_pow2(size_t x) { return x != 0 && (x & (x - 1)) == 0; }
// `align` is a power of two. Rounding up wraps when x is within align of SIZE_MAX: check first.
static inline size_t qy_round_up(size_t x, size_t align) { return (x + align - 1) & ~(align - 1); }
static inline size_t qy_round_down(size_t x, size_t align) { return x & ~(align - 1); }
static inline void *qy_ptr_up(void *p, size_t align) { return (void *)qy_round_up((uintptr_t)p, align); }
// x > 0; one instruction on x86
static inline unsigned qy_log2_floor(size_t x) { return 63u ^ (unsigned)__builtin_clzll(x); }
static inline unsigned qy_log2_ceil(size_t x) { return x <= 1 ? 0 : 64u - (unsigned)__builtin_clzll(x - 1); }
static inline bool qy_mul_overflows(size_t a, size_t b, size_t *ret_product) {
    return __builtin_mul_overflow(a, b, ret_product);
}
static inline size_t qy_min(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t qy_max(size_t a, size_t b) { return a > b ? a : b; }

#endif
