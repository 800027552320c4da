// SPDX-License-Identifier: MIT
// first_class.h: heaps of their own: see include/quarry/heap.h for what each function promises.
#ifndef QY_HEAP_FIRST_CLASS_H
#define QY_HEAP_FIRST_CLASS_H

#include <quarry/heap.h>

#include "heap/types.h"

qy_heap_t *qy_first_class_create(const char *name, size_t limit);
void qy_first_class_destroy(qy_heap_t *h);
void *qy_first_class_alloc(qy_heap_t *h, size_t align, size_t n, bool zero);
void *qy_first_class_realloc(qy_heap_t *h, void *p, size_t n);
void qy_first_class_free(qy_heap_t *h, void *p);
void qy_first_class_stats(qy_heap_t *h, quarry_heap_stats_t *ret);
void qy_first_class_set_limit(qy_heap_t *h, size_t limit);

#endif
