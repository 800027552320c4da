// SPDX-License-Identifier: MIT
// check_quarry.c: the heap's own names (include/quarry/malloc.h), checked as malloc and its family; in libquarry-check
// only. A program that is linked with one of Quarry's libraries may mix both families. Blocks of heaps that it made
// (quarry_heap_create) are that library's, and go on to it.
#include <errno.h>

#include <quarry/malloc.h>

#include "base/num.h"
#include "check/block.h"
#include "guard/guard.h"
#include "heap/alloc.h"
#include "os/loaded.h"
#include "os/os.h"

#define CALL(name, family) \
    const qy_check_call_t call = {name, family, QY_STACK_CALLER()}

// The library's function, where the block is none of ours and there is such a library.
#define NEXT(name, p) ((__typeof__(name) *)(uintptr_t)(quarry_block_is_ours(p) ? NULL : qy_os_symbol_next(#name)))
static bool quarry_block_is_ours(const void *p) {
    return !p || qy_guard_is_near(p) || qy_check_place((uintptr_t)p).record;
}

void *quarry_malloc(size_t n) {
    CALL("quarry_malloc", QY_CHECK_MALLOC);
    return qy_check_alloc(&call, QY_ALIGN_MIN, n, 0);
}
void *quarry_calloc(size_t count, size_t size) {
    CALL("quarry_calloc", QY_CHECK_CALLOC);
    size_t n;
    if (!qy_mul_overflows(count, size, &n)) return qy_check_alloc(&call, QY_ALIGN_MIN, n, 0);
    qy_check_bad_argument(&call, "the product of the two sizes is too large for a size");
    return qy_out_of_memory();
}

// ---- blocks that may be another library's ---------------------------------------------------------------------------

void quarry_free(void *p) {
    CALL("quarry_free", QY_CHECK_MALLOC);
    __typeof__(quarry_free) *next = NEXT(quarry_free, p);
    if (next) next(p);
    else qy_check_free(&call, p, NULL);
}
void quarry_free_sized(void *p, size_t n) {
    CALL("quarry_free_sized", QY_CHECK_MALLOC);
    const qy_check_claim_t claim = {.has_size = true, .has_align = true, .size = n};
    __typeof__(quarry_free_sized) *next = NEXT(quarry_free_sized, p);
    if (next) next(p, n);
    else qy_check_free(&call, p, &claim);
}
void quarry_free_aligned_sized(void *p, size_t align, size_t n) {
    CALL("quarry_free_aligned_sized", QY_CHECK_MALLOC);
    const qy_check_claim_t claim = {.has_size = true, .has_align = true, .size = n, .align = align};
    __typeof__(quarry_free_aligned_sized) *next = NEXT(quarry_free_aligned_sized, p);
    if (next) next(p, align, n);
    else qy_check_free(&call, p, &claim);
}
void *quarry_realloc(void *p, size_t n) {
    CALL("quarry_realloc", QY_CHECK_REALLOC);
    __typeof__(quarry_realloc) *next = NEXT(quarry_realloc, p);
    return next ? next(p, n) : qy_check_realloc(&call, p, n);
}
void *quarry_reallocarray(void *p, size_t count, size_t size) {
    CALL("quarry_reallocarray", QY_CHECK_REALLOC);
    size_t n;
    if (qy_mul_overflows(count, size, &n)) {
        qy_check_bad_argument(&call, "the product of the two sizes is too large for a size");
        return qy_out_of_memory();
    }
    __typeof__(quarry_realloc) *next = NEXT(quarry_realloc, p);
    return next ? next(p, n) : qy_check_realloc(&call, p, n);
}
size_t quarry_usable_size(const void *p) {
    CALL("quarry_usable_size", QY_CHECK_MALLOC);
    __typeof__(quarry_usable_size) *next = NEXT(quarry_usable_size, p);
    return next ? next(p) : qy_check_size(&call, p);
}

// ---- alignment ------------------------------------------------------------------------------------------------------

static bool align_is_none(const qy_check_call_t *call, size_t align) {
    if (qy_is_pow2(align)) return false;
    qy_check_bad_argument(call, "the alignment is no power of two");
    return true;
}

void *quarry_aligned_alloc(size_t align, size_t n) {
    CALL("quarry_aligned_alloc", QY_CHECK_MEMALIGN);
    if (!align_is_none(&call, align)) return qy_check_alloc(&call, align, n, align);
    errno = EINVAL;
    return NULL;
}
int quarry_posix_memalign(void **ret_ptr, size_t align, size_t n) {
    CALL("quarry_posix_memalign", QY_CHECK_MEMALIGN);
    if (align_is_none(&call, align) || align % sizeof(void *)) return EINVAL;
    int saved = errno;
    void *p = qy_check_alloc(&call, align, n, align);
    if (!p) return ENOMEM;
    errno = saved;
    *ret_ptr = p;
    return 0;
}
void *quarry_memalign(size_t align, size_t n) {
    CALL("quarry_memalign", QY_CHECK_MEMALIGN);
    if (align > SIZE_MAX / 2 + 1) {
        errno = EINVAL;
        return NULL;
    }
    size_t log2 = align <= 1 ? 0 : qy_log2_ceil(align);
    return qy_check_alloc(&call, (size_t)1 << log2, n, align);
}
void *quarry_valloc(size_t n) {
    CALL("quarry_valloc", QY_CHECK_MEMALIGN);
    return qy_check_alloc(&call, qy_os_page_size(), n, qy_os_page_size());
}
void *quarry_pvalloc(size_t n) {
    CALL("quarry_pvalloc", QY_CHECK_MEMALIGN);
    size_t page = qy_os_page_size();
    if (n > PTRDIFF_MAX - page) return qy_out_of_memory();
    return qy_check_alloc(&call, page, n ? qy_round_up(n, page) : page, page);
}
