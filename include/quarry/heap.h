// SPDX-License-Identifier: MIT
// heap.h: first-class heaps: memory of one purpose kept together, limited, walked, and destroyed
// at once, without freeing block by block.
//
//   quarry_heap_t *h = quarry_heap_create(&(quarry_heap_options_t){.name = "parser"});
//   node *n = quarry_heap_alloc(h, sizeof *n);
//   quarry_heap_destroy(h);                     // n and everything else of h is gone
//
// Threads: every function may be called from any thread, except that nothing may touch a heap or
// its blocks once quarry_heap_destroy has been called. Blocks may also be given to quarry_free (and
// to free() under the drop-in) from any thread. Errors and sizes: as in malloc.h.
// Cost: one uncontended lock per call, so slower than quarry_malloc; no system call when the heap
// has free memory.
#ifndef QUARRY_HEAP_H
#define QUARRY_HEAP_H

#include <quarry/attr.h>

QUARRY_BEGIN

typedef struct quarry_heap quarry_heap_t;

/// What quarry_heap_create takes. Zero is a good default for every field.
typedef struct quarry_heap_options {
    const char *name;  ///< for reports; copied, at most 31 bytes are kept; NULL: "heap"
    size_t limit;      ///< most bytes the heap may hold from the page layer; 0: none
} quarry_heap_options_t;

/// What quarry_heap_stats fills. All sizes in bytes.
typedef struct quarry_heap_stats {
    size_t live_blocks;  ///< blocks given out and not freed
    size_t live_bytes;   ///< their usable sizes
    size_t held_bytes;   ///< memory the heap holds for them: live + free inside slabs
    size_t limit;        ///< as set; 0: none
} quarry_heap_stats_t;

/// Make an empty heap; NULL and ENOMEM when there is no memory for it (at most 8,388,607 at a time).
/// The caller owns it until quarry_heap_destroy. `options` may be NULL.
QUARRY_API quarry_heap_t *quarry_heap_create(const quarry_heap_options_t *options) QUARRY_NOEXCEPT;

/// Free the heap and every block still in it. NULL is allowed.
/// Cost: proportional to the slabs and large blocks it holds, not to the blocks.
QUARRY_API void quarry_heap_destroy(quarry_heap_t *heap) QUARRY_NOEXCEPT;

/// As quarry_malloc, quarry_calloc, quarry_aligned_alloc, from `heap`. ENOMEM also at its limit.
QUARRY_API void *quarry_heap_alloc(quarry_heap_t *heap, size_t size) QUARRY_NOEXCEPT QUARRY_MALLOC QUARRY_SIZE(2);
QUARRY_API void *quarry_heap_calloc(quarry_heap_t *heap, size_t count, size_t size) QUARRY_NOEXCEPT QUARRY_MALLOC
    QUARRY_SIZE2(2, 3);
QUARRY_API void *quarry_heap_aligned_alloc(
    quarry_heap_t *heap, size_t alignment, size_t size) QUARRY_NOEXCEPT QUARRY_MALLOC QUARRY_ALIGN(2) QUARRY_SIZE(3);

/// As quarry_realloc; a block that moves stays in `heap` (also when it is given to quarry_realloc). `ptr` must be of
/// `heap` (or NULL).
QUARRY_API void *quarry_heap_realloc(quarry_heap_t *heap, void *ptr, size_t size) QUARRY_NOEXCEPT QUARRY_SIZE(3);

/// Give one block back. NULL is allowed. A block of another heap is a fault: one line, abort.
QUARRY_API void quarry_heap_free(quarry_heap_t *heap, void *ptr) QUARRY_NOEXCEPT;

/// Change the limit (0: none). Blocks already given out stay, also above it.
QUARRY_API void quarry_heap_set_limit(quarry_heap_t *heap, size_t limit) QUARRY_NOEXCEPT;

/// Call `visit(block, usable_size, arg)` for every live block, in no particular order, until it
/// returns non-zero, which is then returned; else 0. The heap is locked meanwhile: `visit` must not
/// call into this heap, free blocks of it, read statistics, or fork. Needs 1 KiB of stack and no other memory.
QUARRY_API int quarry_heap_walk(
    quarry_heap_t *heap, int (*visit)(void *block, size_t usable_size, void *arg), void *arg) QUARRY_NOEXCEPT;

/// Fill *ret_stats. Cost: a walk over the heap's slabs.
QUARRY_API void quarry_heap_stats(quarry_heap_t *heap, quarry_heap_stats_t *ret_stats) QUARRY_NOEXCEPT;

/// Verify every invariant that can be seen; 0 if the heap is sound, else -1 (and one line on
/// stderr that says what was found). Cost: a walk over all free blocks.
QUARRY_API int quarry_heap_check(quarry_heap_t *heap) QUARRY_NOEXCEPT;

QUARRY_END

#endif
