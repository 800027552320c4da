// SPDX-License-Identifier: MIT
// stack_align.h: rounding an address up, in the two ways there are.
//
// The stack uses the full form: it needs no logarithm, and with a constant alignment it is one addition and one mask.
// The other is kept to be compared with: tests/pool/test_stack_chunks.c proves them equal, bench/scenarios/align.c
// times them.
#ifndef QY_POOL_STACK_ALIGN_H
#define QY_POOL_STACK_ALIGN_H

#include <stdint.h>

// `align` is a power of two.
static inline uintptr_t qy_align_full(uintptr_t address, uintptr_t align) { return (address + align - 1) & -align; }

// `logalign` is its logarithm: two masks made from it.
static inline uintptr_t qy_align_log(uintptr_t address, unsigned logalign) {
    uintptr_t low = ((uintptr_t)1 << logalign) - 1, high = ~low;
    return (address + low) & high;
}

#endif
