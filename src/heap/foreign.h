// SPDX-License-Identifier: MIT
// foreign.h: what can be said of a pointer that is no memory of this heap.
#ifndef QY_HEAP_FOREIGN_H
#define QY_HEAP_FOREIGN_H

// For the line that ends the process: whose may it be? Reads around p, where that can be read.
const char *qy_foreign_detail(const void *p);

#endif
