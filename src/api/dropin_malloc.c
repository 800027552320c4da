// SPDX-License-Identifier: MIT
// dropin_malloc.c: the C library's names for the heap; in libquarry-malloc only. What C23, POSIX and
// glibc say of each function holds here; the tests in tests/api say it in detail.
//
// What libc and C++ libraries make of another function is made of it here, too, by its name (this file is compiled with
// -fsemantic-interposition): a program may have a malloc, realloc and free of its own, and none of what was added to C
// later.
#include <stdio.h>

#include "api/dropin_heap.h"
#include "api/dropin_own.h"
#include "api/family.h"
#include "heap/lookup.h"
#include "heap/purge.h"
#include "os/loaded.h"
#include "pages/chunk.h"

EXPORT QY_ALIGNED(QY_CACHE_LINE) void *malloc(size_t n) { return family_malloc(n); }
EXPORT QY_ALIGNED(QY_CACHE_LINE) void free(void *p) { qy_free_fast(p); }
EXPORT void free_sized(void *p, size_t n) {
    family_check_sized(p, 1, n);
    free(p);
}
EXPORT void free_aligned_sized(void *p, size_t align, size_t n) {
    family_check_sized(p, align, n);
    free(p);
}
EXPORT void cfree(void *p) { free(p); }
EXPORT void *calloc(size_t count, size_t size) { return family_calloc(count, size); }
EXPORT void *realloc(void *p, size_t n) { return qy_realloc(p, n); }
EXPORT void *reallocarray(void *p, size_t count, size_t size) {
    size_t n;
    return QY_UNLIKELY(qy_mul_overflows(count, size, &n)) ? qy_out_of_memory() : realloc(p, n);
}
EXPORT void *aligned_alloc(size_t align, size_t n) { return family_aligned_alloc(align, n); }
EXPORT int posix_memalign(void **ret_ptr, size_t align, size_t n) { return family_posix_memalign(ret_ptr, align, n); }
EXPORT void *memalign(size_t align, size_t n) { return family_memalign(align, n); }
EXPORT void *valloc(size_t n) { return family_valloc(n); }
EXPORT void *pvalloc(size_t n) { return family_pvalloc(n); }

DROPIN_ALIASES;

static __typeof__(malloc) own_malloc __attribute__((alias("malloc")));
static __typeof__(free) own_free __attribute__((alias("free")));
static __typeof__(aligned_alloc) own_aligned_alloc __attribute__((alias("aligned_alloc")));
static __typeof__(malloc_usable_size) own_usable_size __attribute__((alias("malloc_usable_size")));
QY_HIDDEN const qy_dropin_own_t qy_dropin_own = {own_malloc, own_free, own_aligned_alloc};

// A block of the program's own malloc. The C library would answer for it if we were not there; it may do so now. 0:
// nobody knows.
QY_COLD static size_t usable_of_another(void *p) {
    size_t (*next)(void *) = (size_t(*)(void *))(uintptr_t)qy_os_symbol_next("malloc_usable_size");
    return next && !QY_SAME(next, own_usable_size) ? next(p) : 0;
}

QY_NOINLINE static size_t usable_slow(void *p) {
    if (QY_UNLIKELY(!QY_SAME(malloc, own_malloc)) && p) {
        qy_object_kind_t kind = qy_lookup(p).kind;
        if (kind == QY_OBJECT_FOREIGN || kind == QY_OBJECT_INTERIOR) return usable_of_another(p);
    }
    return qy_usable_size(p);
}

EXPORT size_t malloc_usable_size(void *p) {
    size_t c;
    return QY_LIKELY(qy_is_mine(QY_CACHE, p, &c)) ? qy_class_size[c] : usable_slow(p);
}

// After the program's own handlers, before those of the libraries it was linked with. What a small program has is not
// worth the pages of code that it would touch for it.
#define SMALL ((size_t)1 << 20)
__attribute__((destructor)) static void ending(void) {
    if (qy_units_touched_bytes() > SMALL) qy_purge_ending();
}
