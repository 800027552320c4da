// SPDX-License-Identifier: MIT
// meta.h: memory for the heap's own records, apart from users' blocks so that no overflow of
// theirs reaches it. A bump allocator: records are recycled by their owners, never returned.
#ifndef QY_HEAP_META_H
#define QY_HEAP_META_H

#include "heap/types.h"

// Zeroed memory, aligned to a cache line; NULL if the kernel has none. Thread-safe.
void *qy_meta_alloc(size_t bytes);
// Whole pages, of the smallest size there is.
#define QY_META_PAGE ((size_t)4096)
void *qy_meta_alloc_apart(size_t bytes);
size_t qy_meta_bytes(void);
// Where they are: calls fn for pieces of address space until it says no. Takes the lock.
void qy_meta_each(bool (*fn)(const void *base, size_t bytes, void *arg), void *arg);

// A descriptor with all fields zero; NULL if there is no memory. Thread-safe.
qy_slab_t *qy_meta_slab_new(void);
void qy_meta_slab_delete(qy_slab_t *slab);

// At least n zero bits, n <= QY_META_BITS_MAX; the same n to give them back.
#define QY_META_BITS_MAX 4096u
uint64_t *qy_meta_bits_new(uint32_t n);
void qy_meta_bits_delete(uint64_t *bits, uint32_t n);

qy_lock_t *qy_meta_lock(void);  // for fork.c

#endif
