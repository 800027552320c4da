// SPDX-License-Identifier: MIT
// dropin_own.h: our functions by another way than their names, which may be somebody else's: is it ours that is called?
#ifndef QY_API_DROPIN_OWN_H
#define QY_API_DROPIN_OWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

typedef struct qy_dropin_own {
    void *(*malloc)(size_t n);
    void (*free)(void *p);
    void *(*aligned_alloc)(size_t align, size_t n);
} qy_dropin_own_t;
extern const qy_dropin_own_t qy_dropin_own;

// quarry_free of the library that this is in (quarry.c), whoever has the name. To be compared in another file than
// that, in which clang takes the name for ours.
QY_HIDDEN void qy_own_quarry_free(void *p);

// clang takes a function and its alias for two that differ, so it may not know what is compared.
#define QY_SAME(a, b) qy_dropin_same((uintptr_t)(a), (uintptr_t)(b))
static inline bool qy_dropin_same(uintptr_t a, uintptr_t b) {
    QY_FORGET(a);
    return a == b;
}

#endif
