// SPDX-License-Identifier: MIT
// touched.h: which pages of this process were ever used. The others of private memory read as zero, or as the file they
// are of; to read them would cost a fault each, and page tables.
//
// Nothing here allocates or touches errno. Threads: each has a window of its own.
#ifndef QY_OS_TOUCHED_H
#define QY_OS_TOUCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QY_TOUCHED_PAGES 512u

typedef struct qy_os_touched {
    int fd;  // -1: the kernel does not tell
    size_t page, first, count;
    uint64_t entry[QY_TOUCHED_PAGES];
} qy_os_touched_t;

void qy_os_touched_begin(qy_os_touched_t *t);
void qy_os_touched_end(qy_os_touched_t *t);
// Was the page of this address used, so that it is in memory or swapped out? True where nobody knows.
bool qy_os_touched(qy_os_touched_t *t, uintptr_t address);

#endif
