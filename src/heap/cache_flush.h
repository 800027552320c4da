// SPDX-License-Identifier: MIT
// cache_flush.h: what leaves a thread's cache on the slow paths.
#ifndef QY_HEAP_CACHE_FLUSH_H
#define QY_HEAP_CACHE_FLUSH_H

#include "heap/types.h"

// Hand everything in the cache back; the heap stays attached. For trim and for tcache:off.
void qy_thread_flush(qy_thread_t *t);

// Bring the blocks of a chain home. All are of t's heap. Takes the heap's lock.
void qy_cache_flush_list(qy_thread_t *t, qy_block_t *list);

// A full generation of class c, or NULL: the heap keeps it, or it goes home. Takes the heap's lock.
void qy_cache_give_up(qy_thread_t *t, unsigned c, qy_block_t *list);

#endif
