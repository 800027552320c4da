// SPDX-License-Identifier: MIT
// alloc.h: the heap's operations. The fast halves are in alloc_fast.h and free_fast.h; everything
// that is not in them is cold.
#ifndef QY_HEAP_ALLOC_H
#define QY_HEAP_ALLOC_H

#include "heap/lookup.h"
#include "heap/types.h"

// n bytes, 16-aligned from 9 bytes on, else 8-aligned; NULL and ENOMEM.
void *qy_alloc_slow(size_t n);
void qy_free_slow(void *p);
void qy_free_other(void *p, size_t c, qy_cache_t *t);  // c: tag ^ key, no class of links up to 8 KiB of this heap
// No block start, or free already, or no room in the list of class c, from which one was taken.
void qy_free_rare(void *p, size_t c, qy_cache_t *t);
void qy_free_full(void *p, size_t c, qy_cache_t *t);  // the class's generation is full

void *qy_calloc_slow(size_t n);  // n checked by the caller, > what the fast half serves
void *qy_realloc(void *p, size_t n);
void *qy_aligned_alloc(size_t align, size_t n);  // align: a power of two
void *qy_aligned_calloc(size_t align, size_t n);
size_t qy_usable_size(const void *p);

// Resize without copying: p, which is o, or where its pages went; NULL if only a copy can do it (or there is no
// memory).
void *qy_resize(void *p, qy_object_t o, size_t n);

// An object that grows from `usable` to n bytes and must be copied: may much of it never have been written?
QY_INLINE bool qy_copy_is_sparse(size_t usable, size_t n) { return usable > QY_LONG_USUAL && n > usable; }
// Copy n bytes of it to where all is zero.
void qy_copy_sparse(char *to, const char *from, size_t n);

// In `h` under its lock: for first-class heaps, threads without a cache, and tcache:off.
// align: a power of two. *ret_fresh: the n bytes are known to be zero.
void *qy_alloc_locked(qy_heap_t *h, size_t align, size_t n, bool *ret_fresh);

void *qy_out_of_memory(void);  // errno = ENOMEM, NULL

#endif
