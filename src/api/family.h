// SPDX-License-Identifier: MIT
// family.h: the bodies of the malloc family, written once and compiled under two sets of names:
// quarry_* (quarry.c) and the C library's (dropin_malloc.c). All are inlined: an exported function
// is its fast path followed by jumps.
#ifndef QY_API_FAMILY_H
#define QY_API_FAMILY_H

#include <errno.h>
#include <string.h>

#include "heap/alloc_fast.h"
#include "heap/free_fast.h"
#include "heap/sized.h"
#include "os/os.h"

QY_INLINE void *family_malloc(size_t n) {
    if (n > QY_SMALL_MAX) return n <= QY_MEDIUM_MAX ? qy_alloc_medium(n) : qy_alloc_slow(n);
    return qy_alloc_small(n);
}

QY_INLINE void *family_calloc(size_t count, size_t size) {
    size_t n;
    if (QY_UNLIKELY(qy_mul_overflows(count, size, &n))) return qy_out_of_memory();
    if (QY_UNLIKELY(n > QY_MEDIUM_MAX)) return qy_calloc_slow(n);
    qy_cache_t *t = QY_CACHE;
    void *p = qy_alloc_pop(t, n <= QY_SMALL_MAX ? t->small[n] : t->cls[qy_step_medium(n)]);
    // With an empty cache the slow path may know a block that needs no zeroing.
    if (QY_UNLIKELY(!p)) return qy_calloc_slow(n);
    return memset(p, 0, n);
}

// Looked at, not freed. The default for `align` is 1.
QY_INLINE void family_check_sized(const void *p, size_t align, size_t n) {
    if (QY_UNLIKELY(qy_size_may_be_wrong(p, n) || qy_align_is_wrong(p, align))) qy_sized_check(p, align, n);
}

QY_INLINE void *family_reallocarray(void *p, size_t count, size_t size) {
    size_t n;
    if (QY_UNLIKELY(qy_mul_overflows(count, size, &n))) return qy_out_of_memory();
    return qy_realloc(p, n);
}

QY_INLINE void *family_aligned(size_t align, size_t n) {
    // Up to 8 bytes are aligned to 8 only.
    if (QY_LIKELY(align <= QY_ALIGN_MIN && (n > QY_TINY || align <= QY_TINY))) return family_malloc(n);
    return qy_aligned_alloc(align, n);
}

QY_INLINE void *family_aligned_alloc(size_t align, size_t n) {
    if (QY_UNLIKELY(!qy_is_pow2(align))) {
        errno = EINVAL;
        return NULL;
    }
    return family_aligned(align, n);
}

QY_INLINE int family_posix_memalign(void **ret_ptr, size_t align, size_t n) {
    if (!qy_is_pow2(align) || align % sizeof(void *)) return EINVAL;
    int saved = errno;
    void *p = family_aligned(align, n);
    if (!p) return ENOMEM;  // in errno, too, as glibc leaves it
    errno = saved;
    *ret_ptr = p;
    return 0;
}

QY_INLINE void *family_memalign(size_t align, size_t n) {
    if (align > SIZE_MAX / 2 + 1) {
        errno = EINVAL;
        return NULL;
    }
    return family_aligned(align <= 1 ? 1 : (size_t)1 << qy_log2_ceil(align), n);
}

QY_INLINE void *family_valloc(size_t n) { return qy_aligned_alloc(qy_os_page_size(), n); }

QY_INLINE void *family_pvalloc(size_t n) {
    size_t page = qy_os_page_size();
    if (n > PTRDIFF_MAX - page) return qy_out_of_memory();
    return qy_aligned_alloc(page, n ? qy_round_up(n, page) : page);
}

#endif
