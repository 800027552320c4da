// SPDX-License-Identifier: MIT
// dropin_new.c: the C++ operators, by their mangled names, so that the library needs no C++ runtime
// and an allocation in C++ costs what malloc costs. All forms are replaced together.
#include <dlfcn.h>

#include "api/family.h"
#include "rt/diag.h"

#define EXPORT __attribute__((visibility("default")))

typedef void (*handler_t)(void);

// What a program without a dynamic linker has of the C++ runtime, which dlsym does not find there.
// Null where the program has none or not yet; with a dynamic linker, that is looked into again.
__attribute__((weak)) handler_t linked_get_handler(void) __asm__("_ZSt15get_new_handlerv");
__attribute__((weak)) void linked_throw(void) __asm__("_ZSt17__throw_bad_allocv");

// Something of the C++ runtime, if the process has one. Looked for when it is needed, since a program
// may load its C++ runtime later than us, and by the runtimes' names too, since a module that a C
// program loads brings one that the global scope does not show. Nothing is loaded by this.
static void *of_runtime(void *scope, const char *name) {
    static const char *const runtimes[] = {"libstdc++.so.6", "libc++abi.so.1", "libc++.so.1"};
    void *symbol = dlsym(scope, name);
    for (unsigned i = 0; !symbol && i < sizeof runtimes / sizeof runtimes[0]; i++) {
        void *runtime = dlopen(runtimes[i], RTLD_LAZY | RTLD_NOLOAD);
        if (!runtime) continue;
        symbol = dlsym(runtime, name);
        dlclose(runtime);  // the module that brought it keeps it
    }
    return symbol;
}

static handler_t current_handler(void) {
    handler_t (*get)(void) = linked_get_handler;
    if (!get) get = (handler_t(*)(void))(uintptr_t)of_runtime(RTLD_DEFAULT, "_ZSt15get_new_handlerv");
    return get ? get() : NULL;
}

static void *one_try(size_t n, size_t align) { return align ? family_aligned_alloc(align, n) : family_malloc(n); }

// As the standard says: call the handler and try again until it gives up. NULL: there is none.
QY_COLD static void *with_handler(size_t n, size_t align) {
    for (handler_t handler; (handler = current_handler());) {
        handler();
        void *p = one_try(n, align);
        if (p) return p;
    }
    return NULL;
}

QY_COLD static void *new_failed(size_t n, size_t align) {
    void *p = with_handler(n, align);
    if (p) return p;
    void (*throw_bad_alloc)(void) = linked_throw;
    if (!throw_bad_alloc) throw_bad_alloc = (void (*)(void))(uintptr_t)of_runtime(RTLD_DEFAULT, "_ZSt17__throw_bad_allocv");
    if (throw_bad_alloc) throw_bad_alloc();
    qy_warn("operator new: no memory for %z bytes, and no C++ runtime to throw std::bad_alloc with", n);
    qy_os_abort();
}

// A handler may throw, and the nothrow forms must catch that. C cannot: the runtime's own nothrow
// operator, which calls our throwing one inside a catch, does it.
QY_COLD static void *nothrow_failed(size_t n, size_t align, const void *nothrow, const char *name) {
    if (!current_handler()) return NULL;
    void *runtime = of_runtime(RTLD_NEXT, name);
    if (!runtime) return with_handler(n, align);
    if (align) return ((void *(*)(size_t, size_t, const void *))(uintptr_t)runtime)(n, align, nothrow);
    return ((void *(*)(size_t, const void *))(uintptr_t)runtime)(n, nothrow);
}

#define NEW(name, symbol)                                   \
    EXPORT void *name(size_t n) __asm__(symbol);            \
    EXPORT void *name(size_t n) {                           \
        void *p = family_malloc(n);                         \
        return QY_LIKELY(p != NULL) ? p : new_failed(n, 0); \
    }
#define NEW_NOTHROW(name, symbol)                                                \
    EXPORT void *name(size_t n, const void *nothrow) __asm__(symbol);            \
    EXPORT void *name(size_t n, const void *nothrow) {                           \
        void *p = family_malloc(n);                                              \
        return QY_LIKELY(p != NULL) ? p : nothrow_failed(n, 0, nothrow, symbol); \
    }
#define NEW_ALIGNED(name, symbol)                               \
    EXPORT void *name(size_t n, size_t align) __asm__(symbol);  \
    EXPORT void *name(size_t n, size_t align) {                 \
        void *p = family_aligned_alloc(align, n);               \
        return QY_LIKELY(p != NULL) ? p : new_failed(n, align); \
    }
#define NEW_ALIGNED_NOTHROW(name, symbol)                                            \
    EXPORT void *name(size_t n, size_t align, const void *nothrow) __asm__(symbol);  \
    EXPORT void *name(size_t n, size_t align, const void *nothrow) {                 \
        void *p = family_aligned_alloc(align, n);                                    \
        return QY_LIKELY(p != NULL) ? p : nothrow_failed(n, align, nothrow, symbol); \
    }
#define DELETE(name, symbol, ...)                          \
    EXPORT void name(void *p __VA_ARGS__) __asm__(symbol); \
    EXPORT void name(void *p __VA_ARGS__) { qy_free_fast(p); }

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"

NEW(new_one, "_Znwm")
NEW(new_array, "_Znam")
NEW_NOTHROW(new_one_nothrow, "_ZnwmRKSt9nothrow_t")
NEW_NOTHROW(new_array_nothrow, "_ZnamRKSt9nothrow_t")
NEW_ALIGNED(new_one_aligned, "_ZnwmSt11align_val_t")
NEW_ALIGNED(new_array_aligned, "_ZnamSt11align_val_t")
NEW_ALIGNED_NOTHROW(new_one_aligned_nothrow, "_ZnwmSt11align_val_tRKSt9nothrow_t")
NEW_ALIGNED_NOTHROW(new_array_aligned_nothrow, "_ZnamSt11align_val_tRKSt9nothrow_t")

DELETE(delete_one, "_ZdlPv")
DELETE(delete_array, "_ZdaPv")
DELETE(delete_one_sized, "_ZdlPvm", , size_t n)
DELETE(delete_array_sized, "_ZdaPvm", , size_t n)
DELETE(delete_one_nothrow, "_ZdlPvRKSt9nothrow_t", , const void *nothrow)
DELETE(delete_array_nothrow, "_ZdaPvRKSt9nothrow_t", , const void *nothrow)
DELETE(delete_one_aligned, "_ZdlPvSt11align_val_t", , size_t align)
DELETE(delete_array_aligned, "_ZdaPvSt11align_val_t", , size_t align)
DELETE(delete_one_sized_aligned, "_ZdlPvmSt11align_val_t", , size_t n, size_t align)
DELETE(delete_array_sized_aligned, "_ZdaPvmSt11align_val_t", , size_t n, size_t align)
DELETE(delete_one_aligned_nothrow, "_ZdlPvSt11align_val_tRKSt9nothrow_t", , size_t align, const void *nothrow)
DELETE(delete_array_aligned_nothrow, "_ZdaPvSt11align_val_tRKSt9nothrow_t", , size_t align, const void *nothrow)

#pragma GCC diagnostic pop
