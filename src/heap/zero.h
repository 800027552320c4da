// SPDX-License-Identifier: MIT
// zero.h: what malloc(0) returns: addresses with no memory behind them, so that whoever uses one faults.
#ifndef QY_HEAP_ZERO_H
#define QY_HEAP_ZERO_H

#include "heap/types.h"

// An address of its own, a multiple of align; NULL: none is left, or there is no address space. Then a block of some
// bytes must do.
void *qy_zero_alloc(size_t align);

#define QY_ZERO_BYTES ((size_t)1 << 20)
extern QY_HIDDEN _Atomic(char *) qy_zero_base;  // NULL until the first one is wanted

QY_INLINE bool qy_zero_is_near(const void *p) {
    const char *base = atomic_load_explicit(&qy_zero_base, memory_order_acquire);
    return QY_UNLIKELY(base != NULL) && (uintptr_t)p - (uintptr_t)base < QY_ZERO_BYTES;
}

// Of an address in there: is it in use?
bool qy_zero_is_used(const void *p);

// False: it was not in use.
bool qy_zero_free(void *p);

#endif
