// SPDX-License-Identifier: MIT
// check_malloc.c: the C library's names, checked; in libquarry-check only. What C23, POSIX and glibc say of each
// function holds here as in dropin_malloc.c, but that realloc always moves, and that malloc_usable_size says what was
// asked for. Compiled with -fsemantic-interposition: a program may have a malloc, realloc and free of its own, and none
// of what was added to C later.
#include <stdio.h>
#include <string.h>

#include "api/dropin_heap.h"
#include "api/dropin_own.h"
#include "base/num.h"
#include "check/block.h"
#include "check/mismatch.h"
#include "heap/alloc.h"
#include "os/loaded.h"

#define CALL(name, family) \
    const qy_check_call_t call = {name, family, QY_STACK_CALLER()}

EXPORT void *malloc(size_t n) {
    CALL("malloc", QY_CHECK_MALLOC);
    return qy_check_alloc(&call, QY_ALIGN_MIN, n, 0);
}
EXPORT void free(void *p) {
    CALL("free", QY_CHECK_MALLOC);
    qy_check_free(&call, p, NULL);
}
EXPORT void cfree(void *p) {
    CALL("cfree", QY_CHECK_MALLOC);
    qy_check_free(&call, p, NULL);
}
EXPORT void *calloc(size_t count, size_t size) {
    CALL("calloc", QY_CHECK_CALLOC);
    size_t n;
    if (!qy_mul_overflows(count, size, &n)) return qy_check_alloc(&call, QY_ALIGN_MIN, n, 0);
    qy_check_bad_argument(&call, "the product of the two sizes is too large for a size");
    return qy_out_of_memory();
}
EXPORT void *realloc(void *p, size_t n) {
    CALL("realloc", QY_CHECK_REALLOC);
    return qy_check_realloc(&call, p, n);
}

static __typeof__(malloc) check_own_malloc __attribute__((alias("malloc")));
static __typeof__(free) check_own_free __attribute__((alias("free")));
static __typeof__(malloc_usable_size) check_own_usable __attribute__((alias("malloc_usable_size")));
QY_HIDDEN const qy_dropin_own_t qy_dropin_own = {check_own_malloc, check_own_free, NULL};

EXPORT void *reallocarray(void *p, size_t count, size_t size) {
    CALL("reallocarray", QY_CHECK_REALLOC);
    size_t n;
    if (qy_mul_overflows(count, size, &n)) {
        qy_check_bad_argument(&call, "the product of the two sizes is too large for a size");
        return qy_out_of_memory();
    }
    return QY_LIKELY(!qy_check_malloc_mixed) ? qy_check_realloc(&call, p, n) : realloc(p, n);
}

EXPORT void free_sized(void *p, size_t n) {
    CALL("free_sized", QY_CHECK_MALLOC);
    const qy_check_claim_t claim = {.has_size = true, .has_align = true, .size = n};
    if (QY_LIKELY(!qy_check_malloc_mixed)) qy_check_free(&call, p, &claim);
    else free(p);
}
EXPORT void free_aligned_sized(void *p, size_t align, size_t n) {
    CALL("free_aligned_sized", QY_CHECK_MALLOC);
    const qy_check_claim_t claim = {.has_size = true, .has_align = true, .size = n, .align = align};
    if (QY_LIKELY(!qy_check_malloc_mixed)) qy_check_free(&call, p, &claim);
    else free(p);
}

// ---- alignment ----------------------------------------------------------------------------------------------------

static bool align_is_bad(const qy_check_call_t *call, size_t align) {
    if (qy_is_pow2(align)) return false;
    qy_check_bad_argument(call, "the alignment is no power of two");
    return true;
}

EXPORT void *aligned_alloc(size_t align, size_t n) {
    CALL("aligned_alloc", QY_CHECK_MEMALIGN);
    if (!align_is_bad(&call, align)) return qy_check_alloc(&call, align, n, align);
    errno = EINVAL;
    return NULL;
}
EXPORT int posix_memalign(void **ret_ptr, size_t align, size_t n) {
    CALL("posix_memalign", QY_CHECK_MEMALIGN);
    if (align_is_bad(&call, align) || align % sizeof(void *)) return EINVAL;
    int saved = errno;
    void *p = qy_check_alloc(&call, align, n, align);
    if (!p) return ENOMEM;
    errno = saved;
    *ret_ptr = p;
    return 0;
}
// glibc takes the next power of two.
EXPORT void *memalign(size_t align, size_t n) {
    CALL("memalign", QY_CHECK_MEMALIGN);
    if (align > 1 && align_is_bad(&call, align) && align > SIZE_MAX / 2 + 1) {
        errno = EINVAL;
        return NULL;
    }
    size_t log2 = align <= 1 ? 0 : qy_log2_ceil(align);
    return qy_check_alloc(&call, (size_t)1 << log2, n, align);
}
EXPORT void *valloc(size_t n) {
    CALL("valloc", QY_CHECK_MEMALIGN);
    return qy_check_alloc(&call, qy_os_page_size(), n, qy_os_page_size());
}
EXPORT void *pvalloc(size_t n) {
    CALL("pvalloc", QY_CHECK_MEMALIGN);
    size_t page = qy_os_page_size();
    if (n > PTRDIFF_MAX - page) return qy_out_of_memory();
    return qy_check_alloc(&call, page, n ? qy_round_up(n, page) : page, page);
}

DROPIN_ALIASES;

// A block of the program's own malloc. The C library would answer for it if we were not there; it may do so now. 0:
// nobody knows.
QY_COLD static size_t usable_of_others(void *p) {
    size_t (*next)(void *) = (size_t(*)(void *))(uintptr_t)qy_os_symbol_next("malloc_usable_size");
    return next && !QY_SAME(next, check_own_usable) ? next(p) : 0;
}
EXPORT size_t malloc_usable_size(void *p) {
    CALL("malloc_usable_size", QY_CHECK_MALLOC);
    bool ours = QY_LIKELY(!qy_check_malloc_mixed) || qy_check_place((uintptr_t)p).record || qy_guard_is_near(p);
    return ours ? qy_check_size(&call, p) : usable_of_others(p);
}
