// SPDX-License-Identifier: MIT
// own.h: memory of the recorder's own. The process has it in its resident memory, from which it is taken off later.
#ifndef QY_TRACE_OWN_H
#define QY_TRACE_OWN_H

#include <stddef.h>
#include <stdint.h>

// A range is there from now on, or no more. Of more ranges than fit into the table nothing is known. Threads: all.
void qy_own_add(const void *memory, size_t bytes);
void qy_own_remove(const void *memory);

// Add what of them, and of this library, is resident: of anonymous memory, and of files.
void qy_own_resident(uint64_t *sum_anonymous, uint64_t *sum_file);

#endif
