// SPDX-License-Identifier: MIT
// memory.h: memory for what check knows, apart from the program's blocks. Zeroed, never given back whole; known to
// stacks/own.h, so that readers can tell it from the program's.
#ifndef QY_CHECK_MEMORY_H
#define QY_CHECK_MEMORY_H

#include <stddef.h>

#include "rt/lock.h"

// Aligned to a cache line, or to `page` if that is set; NULL: the kernel has none. Thread-safe.
void *qy_check_memory(size_t bytes, bool page);

qy_lock_t *qy_check_memory_lock(void);  // for fork

#endif
