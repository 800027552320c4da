// SPDX-License-Identifier: MIT
// dropin_own.h: our functions by another way than their names, which may be somebody else's: is it ours that is called?
#ifndef QY_API_DROPIN_OWN_H
#define QY_API_DROPIN_OWN_H

#include <stddef.h>

typedef struct qy_dropin_own {
    void *(*malloc)(size_t n);
    void (*free)(void *p);
    void *(*aligned_alloc)(size_t align, size_t n);
} qy_dropin_own_t;
extern const qy_dropin_own_t qy_dropin_own;

#endif
