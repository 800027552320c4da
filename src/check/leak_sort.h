// SPDX-License-Identifier: MIT
// leak_sort.h: sorting in place, without recursion, memory or libc, for a process that is a copy.
#ifndef QY_CHECK_LEAK_SORT_H
#define QY_CHECK_LEAK_SORT_H

#include <stdbool.h>
#include <stddef.h>

// Heapsort of n things that are told by their numbers: `before` compares two of them, `swap` exchanges them.
typedef struct qy_leak_sort {
    bool (*before)(size_t a, size_t b, void *arg);
    void (*swap)(size_t a, size_t b, void *arg);
    void *arg;
} qy_leak_sort_t;
void qy_leak_sort(size_t n, const qy_leak_sort_t *how);

#endif
