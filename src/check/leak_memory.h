// SPDX-License-Identifier: MIT
// leak_memory.h: memory for a scan, from the kernel. It is full of addresses of blocks, and so it must be known: a scan
// takes it for no root.
//
// Threads: one, that of the scan.
#ifndef QY_CHECK_LEAK_MEMORY_H
#define QY_CHECK_LEAK_MEMORY_H

#include <stddef.h>

// Zeroed; NULL: the kernel has none.
void *qy_leak_memory(size_t bytes);
// The same bytes as it was asked for with. NULL is all right.
void qy_leak_memory_end(void *memory, size_t bytes);
// Calls fn for each piece.
void qy_leak_memory_each(void (*fn)(const void *base, size_t bytes, void *arg), void *arg);

#endif
