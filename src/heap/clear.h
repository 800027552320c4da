// SPDX-License-Identifier: MIT
// clear.h: calloc above QY_RUN_MAX: a fresh mapping, whose untouched pages cost nothing, or a run that is cleared,
// whose pages stay from one such object to the next.
#ifndef QY_HEAP_CLEAR_H
#define QY_HEAP_CLEAR_H

#include <string.h>

#include "heap/sizeclass.h"
#include "heap/types.h"

// Is an object of n bytes better had as a run? So it is where its like was touched.
bool qy_clear_pays(size_t n);

// An object of calloc of n bytes ends; its pages are still there. fresh: it was a mapping, so a look at what nobody
// touched costs a fault.
void qy_clear_learn(const char *p, size_t n, bool fresh);

// The n bytes of a run, more than QY_RUN_MAX, become zero.
void qy_clear_run(void *p, size_t n);

// The same of an object of calloc that may hold old bytes.
QY_INLINE void qy_clear(void *p, size_t n) {
    if (n > QY_RUN_MAX) qy_clear_run(p, n);
    else memset(p, 0, n);
}

#endif
