// SPDX-License-Identifier: MIT
// own.h: memory of the library's own, beside the heap's. The process has it in its resident memory, from which readers
// take it off.
#ifndef QY_STACKS_OWN_H
#define QY_STACKS_OWN_H

#include <stddef.h>
#include <stdint.h>

// A range is there from now on, or no more. Of more ranges than fit into the table (64) nothing is known. So what each
// thread has comes in areas for many threads. Threads: all.
void qy_own_add(const void *memory, size_t bytes);
void qy_own_remove(const void *memory);

// Calls fn for each range that is there.
void qy_own_each(void (*fn)(const void *memory, size_t bytes, void *arg), void *arg);

// Add what of them, and of this library, is resident: of anonymous memory, and of files.
void qy_own_resident(uint64_t *sum_anonymous, uint64_t *sum_file);

#endif
