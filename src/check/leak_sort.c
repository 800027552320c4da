// SPDX-License-Identifier: MIT
// leak_sort.c: see leak_sort.h.
#include "check/leak_sort.h"

static void sift(size_t root, size_t n, const qy_leak_sort_t *how) {
    for (size_t child; (child = 2 * root + 1) < n; root = child) {
        if (child + 1 < n && how->before(child, child + 1, how->arg)) child++;
        if (!how->before(root, child, how->arg)) return;
        how->swap(root, child, how->arg);
    }
}

void qy_leak_sort(size_t n, const qy_leak_sort_t *how) {
    for (size_t i = n / 2; i--;) sift(i, n, how);
    for (size_t end = n; end > 1; end--) {
        how->swap(0, end - 1, how->arg);
        sift(0, end - 1, how);
    }
}
