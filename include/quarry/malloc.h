// SPDX-License-Identifier: MIT
// malloc.h: the general-purpose heap under its own names. A program that links libquarry keeps the malloc that it has.
// libquarry-malloc.so exports the same heap as malloc, free and the rest of the family.
//
//   #include <quarry/malloc.h>
//   int *v = quarry_calloc(n, sizeof *v);      // NULL and ENOMEM if n * 4 overflows
//   v = quarry_realloc(v, 2 * n * sizeof *v);
//   quarry_free(v);
//
// Rules that hold for every function here, unless it says otherwise:
//
//  - Result: a block, or NULL with errno ENOMEM. The caller owns the block until it gives the block to quarry_free.
//    Any thread may free it. A failed call changes nothing: the old block of a realloc stays valid.
//  - Sizes are bytes. Size 0 gives a unique block that may be freed. Sizes above PTRDIFF_MAX fail.
//  - Alignment: every block is aligned to 16 bytes, but one of up to 8 bytes to 8, as C23 and C++ have it: no object of
//    so few bytes needs more. Only the functions that take an alignment give more. QUARRY_CONF=tiny:0 aligns all to 16.
//  - Threads: any thread may call any function at any time, also while other threads fork.
//    No function is async-signal-safe (no malloc is).
//  - End of a thread: the heap takes the thread's caches back in a destructor of a pthread key. One case is missed: the
//    program has more than 31 keys, and the thread's very first call comes from the destructor of a later key, in the
//    last round of destructors (PTHREAD_DESTRUCTOR_ITERATIONS). Such a thread leaves a heap of some 40 KiB for ever.
//    An earlier call in the thread avoids this. The drop-in libquarry-malloc has no such case.
//  - errno: only a failure sets errno. quarry_free never changes it.
//  - Cost: about 20 instructions for sizes up to 1 KiB when the thread's cache has a block. That path has no atomic
//    operation, no lock and no system call.
//  - Misuse that corrupts ends the process, with one line on stderr that names the fault and the address, then abort().
//    Such misuse is a double free, a free of a pointer that is not the start of a block, and a write into freed memory
//    that reaches the heap's links. docs/errors.md explains the lines. A failing environment (no memory, no mappings,
//    a denied system call) never ends the process.
#ifndef QUARRY_MALLOC_H
#define QUARRY_MALLOC_H

#include <quarry/attr.h>

QUARRY_BEGIN

/// Allocate `size` bytes, contents undefined.
QUARRY_API void *quarry_malloc(size_t size) QUARRY_NOEXCEPT QUARRY_MALLOC QUARRY_SIZE(1);

/// Allocate `count * size` bytes of zeros. NULL with ENOMEM if the product overflows.
/// Cost: as quarry_malloc, plus the zeroing. Memory that is fresh from the kernel is not zeroed again.
QUARRY_API void *quarry_calloc(size_t count, size_t size) QUARRY_NOEXCEPT QUARRY_MALLOC QUARRY_SIZE2(1, 2);

/// Resize the block at `ptr` to `size` bytes and return its address, which may be another one. The first min(old, new)
/// bytes are kept. A result that is not NULL replaces `ptr`, which the caller no longer owns.
/// quarry_realloc(NULL, n) is quarry_malloc(n). quarry_realloc(p, 0) frees p and returns NULL, as glibc does.
/// Cost: a lookup when the size class stays. Large blocks grow in place or move by page table (mremap) where they can.
/// Other blocks are copied.
QUARRY_API void *quarry_realloc(void *ptr, size_t size) QUARRY_NOEXCEPT QUARRY_SIZE(2);

/// As quarry_realloc(ptr, count * size), with the product checked. On overflow it returns NULL with ENOMEM, and `ptr`
/// stays valid.
QUARRY_API void *quarry_reallocarray(void *ptr, size_t count, size_t size) QUARRY_NOEXCEPT QUARRY_SIZE2(2, 3);

/// Free the block at `ptr`, from any thread. NULL is allowed and does nothing. errno is kept.
/// Cost: as quarry_malloc for a small block of the thread's own heap. Blocks of other threads go back in groups.
QUARRY_API void quarry_free(void *ptr) QUARRY_NOEXCEPT;

/// C23 free_sized: as quarry_free, of a block that was requested with `size` bytes. A size larger than the block ends
/// the process ("wrong size").
QUARRY_API void quarry_free_sized(void *ptr, size_t size) QUARRY_NOEXCEPT;

/// C23 free_aligned_sized: as quarry_free, of a block of quarry_aligned_alloc with the same `alignment` and `size`.
/// An alignment that the address does not have ends the process ("wrong alignment").
QUARRY_API void quarry_free_aligned_sized(void *ptr, size_t alignment, size_t size) QUARRY_NOEXCEPT;

/// Allocate `size` bytes at a multiple of `alignment`, a power of two (else NULL with EINVAL). `size` need not be a
/// multiple of it. Every alignment up to half of the address space is tried.
QUARRY_API void *quarry_aligned_alloc(size_t alignment, size_t size) QUARRY_NOEXCEPT QUARRY_MALLOC QUARRY_ALIGN(1)
    QUARRY_SIZE(2);

/// POSIX posix_memalign: store the block in *ret_ptr and return 0. On failure it returns the error and leaves *ret_ptr
/// alone. EINVAL: `alignment` is not a power of two, or not a multiple of sizeof(void *). errno stays as it was.
/// ENOMEM: no memory. errno is ENOMEM, too, as in glibc.
QUARRY_API int quarry_posix_memalign(void **ret_ptr, size_t alignment, size_t size) QUARRY_NOEXCEPT;

/// As quarry_aligned_alloc, but an alignment that is no power of two is rounded up to the next one, as in glibc.
QUARRY_API void *quarry_memalign(size_t alignment, size_t size) QUARRY_NOEXCEPT QUARRY_MALLOC QUARRY_ALIGN(1)
    QUARRY_SIZE(2);

/// Allocate `size` bytes at a page boundary.
QUARRY_API void *quarry_valloc(size_t size) QUARRY_NOEXCEPT QUARRY_MALLOC QUARRY_SIZE(1);
/// As quarry_valloc, with the size rounded up to whole pages.
QUARRY_API void *quarry_pvalloc(size_t size) QUARRY_NOEXCEPT QUARRY_MALLOC;

/// Bytes that the heap lets the program use at `ptr`: at least the size that was requested. 0 for NULL.
/// A compiler that checks (_FORTIFY_SOURCE) holds the program to the requested size, so pass the result to
/// quarry_realloc before you use the rest. Cost: one lookup.
QUARRY_API size_t quarry_usable_size(const void *ptr) QUARRY_NOEXCEPT;

/// Give all free memory except `keep` bytes back to the kernel at once. What lies on a page with a live block cannot
/// go, and stays beside these. Returns 1 if any memory went back, else 0.
/// Cost: a walk over the heap's free memory, under its locks. It takes milliseconds.
QUARRY_API int quarry_trim(size_t keep) QUARRY_NOEXCEPT;

/// The version "major.minor.patch" of the library that runs. The string is constant and the library's own.
QUARRY_API const char *quarry_version(void) QUARRY_NOEXCEPT;

QUARRY_END

#endif
