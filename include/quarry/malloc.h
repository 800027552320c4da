// SPDX-License-Identifier: MIT
// malloc.h: the general-purpose heap under its own names. Linking libquarry replaces nobody's
// malloc; libquarry-malloc.so exports the same heap as malloc, free and the rest of the family.
//
//   #include <quarry/malloc.h>
//   int *v = quarry_calloc(n, sizeof *v);      // NULL and ENOMEM if n * 4 overflows
//   v = quarry_realloc(v, 2 * n * sizeof *v);
//   quarry_free(v);
//
// Rules that hold for every function here, unless it says otherwise:
//  - Result: a block the caller owns until it gives it to quarry_free (any thread may free it), or
//    NULL with errno ENOMEM. A failed call changes nothing: the old block of a realloc stays valid.
//  - Sizes are bytes. Size 0 gives a unique, freeable block. Sizes above PTRDIFF_MAX fail.
//  - Alignment: every block is aligned to 16 bytes; more only where asked for.
//  - Threads: any function from any thread at any time, also while other threads fork.
//    Not async-signal-safe (no malloc is). A thread's caches are taken back when it ends, in the first round of
//    destructors of pthread keys after its first call. One case is missed: a program with more than 31 keys, in which
//    a thread's very first call is made by the destructor of a key younger than those, in the last of the four rounds
//    (PTHREAD_DESTRUCTOR_ITERATIONS). No destructor comes after that one, so such a thread leaves a heap, some 40 KiB,
//    for ever. A call anywhere earlier in the thread avoids it.
//  - errno: set only on failure. quarry_free never changes it.
//  - Cost: about 20 instructions for sizes up to 1 KiB when the thread's cache has a block;
//    no atomic, no lock, no system call on that path.
//  - Misuse that corrupts (double free, free of a pointer that is not the start of a block, writes
//    into freed memory that reach the heap's links) ends the process: one line on stderr that names
//    the fault and the address, then abort(). A failing environment (no memory, no mappings, a
//    denied system call) never does.
#ifndef QUARRY_MALLOC_H
#define QUARRY_MALLOC_H

#include <quarry/attr.h>

QUARRY_BEGIN

/// Give `size` bytes, contents undefined.
QUARRY_API void *quarry_malloc(size_t size) QUARRY_NOEXCEPT QUARRY_MALLOC QUARRY_SIZE(1);

/// Give `count * size` bytes of zeros. ENOMEM if the product overflows.
/// Cost: as quarry_malloc, plus the zeroing, which is left out for memory fresh from the kernel.
QUARRY_API void *quarry_calloc(size_t count, size_t size) QUARRY_NOEXCEPT QUARRY_MALLOC QUARRY_SIZE2(1, 2);

/// Resize `ptr` to `size` bytes, moving it if needed; the first min(old, new) bytes are kept.
/// realloc(NULL, n) is malloc(n). realloc(p, 0) frees p and returns NULL, as glibc does.
/// Cost: in place when the size class stays; large blocks grow in place or move by page table
/// (mremap) instead of copying.
QUARRY_API void *quarry_realloc(void *ptr, size_t size) QUARRY_NOEXCEPT QUARRY_SIZE(2);

/// quarry_realloc(ptr, count * size) with the product checked: on overflow NULL, ENOMEM, ptr kept.
QUARRY_API void *quarry_reallocarray(void *ptr, size_t count, size_t size) QUARRY_NOEXCEPT QUARRY_SIZE2(2, 3);

/// Give a block back. NULL is allowed and does nothing. Keeps errno.
QUARRY_API void quarry_free(void *ptr) QUARRY_NOEXCEPT;

/// C23 free_sized: `size` must be what was asked for. More than the block has ends the process ("wrong size").
QUARRY_API void quarry_free_sized(void *ptr, size_t size) QUARRY_NOEXCEPT;

/// C23 free_aligned_sized: for blocks of quarry_aligned_alloc, with what was asked for. An alignment that the block
/// does not have ends the process ("wrong alignment").
QUARRY_API void quarry_free_aligned_sized(void *ptr, size_t alignment, size_t size) QUARRY_NOEXCEPT;

/// Give `size` bytes aligned to `alignment`, a power of two (else NULL with EINVAL). `size` need
/// not be a multiple of it. Every alignment up to half of the address space is tried.
QUARRY_API void *quarry_aligned_alloc(size_t alignment, size_t size) QUARRY_NOEXCEPT QUARRY_MALLOC QUARRY_ALIGN(1)
    QUARRY_SIZE(2);

/// POSIX: store the block in *ret_ptr and return 0, or return EINVAL (alignment is not a power of
/// two or not a multiple of sizeof(void *)) or ENOMEM and leave *ret_ptr and errno alone.
QUARRY_API int quarry_posix_memalign(void **ret_ptr, size_t alignment, size_t size) QUARRY_NOEXCEPT;

/// As glibc's memalign: an alignment that is no power of two is rounded up to the next one.
QUARRY_API void *quarry_memalign(size_t alignment, size_t size) QUARRY_NOEXCEPT QUARRY_MALLOC QUARRY_ALIGN(1)
    QUARRY_SIZE(2);

/// Page-aligned memory; quarry_pvalloc also rounds the size up to whole pages.
QUARRY_API void *quarry_valloc(size_t size) QUARRY_NOEXCEPT QUARRY_MALLOC QUARRY_SIZE(1);
QUARRY_API void *quarry_pvalloc(size_t size) QUARRY_NOEXCEPT QUARRY_MALLOC;

/// Bytes that may be used at `ptr`: at least what was asked for. 0 for NULL.
/// Cost: one lookup. Every byte of it may be read and written as far as the heap is concerned; a compiler that was told
/// to check (_FORTIFY_SOURCE) holds a program to what it asked for, so ask realloc for all of it first.
QUARRY_API size_t quarry_usable_size(const void *ptr) QUARRY_NOEXCEPT;

/// Give all free memory back to the system now, except `keep` bytes. Returns 1 if anything was
/// given back, else 0. Cost: a walk over the heap's free memory, with locks; milliseconds.
QUARRY_API int quarry_trim(size_t keep) QUARRY_NOEXCEPT;

/// "major.minor.patch" of the library that runs.
QUARRY_API const char *quarry_version(void) QUARRY_NOEXCEPT;

QUARRY_END

#endif
