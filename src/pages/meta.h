// SPDX-License-Identifier: MIT
// meta.h: memory for the heap's own records, apart from users' blocks so that no overflow of
// theirs reaches it. A bump allocator: records are recycled by their owners, never returned.
#ifndef QY_PAGES_META_H
#define QY_PAGES_META_H

#include "pages/types.h"

// Zeroed memory, aligned to a cache line; NULL if the kernel has none. Thread-safe.
void *qy_meta_alloc(size_t bytes);
// Whole pages, of the smallest size there is.
#define QY_META_PAGE ((size_t)4096)
void *qy_meta_alloc_apart(size_t bytes);
size_t qy_meta_bytes(void);
// Where they are: calls fn for pieces of address space until it says no. Takes the lock.
void qy_meta_each(bool (*fn)(const void *base, size_t bytes, void *arg), void *arg);

// Records of one size that come and go: a list of the spare ones. All zero is an empty list.
typedef struct qy_meta_records {
    struct qy_meta_spare *spare;  // [lock: meta]
} qy_meta_records_t;
// One with all bytes zero; NULL if there is no memory. Thread-safe.
void *qy_meta_record_new(qy_meta_records_t *of, size_t bytes);
void qy_meta_record_delete(qy_meta_records_t *of, void *record);

// At least n zero bits, n <= QY_META_BITS_MAX; the same n to give them back.
#define QY_META_BITS_MAX 4096u
uint64_t *qy_meta_bits_new(uint32_t n);
void qy_meta_bits_delete(uint64_t *bits, uint32_t n);

qy_lock_t *qy_meta_lock(void);  // for fork.c

#endif
