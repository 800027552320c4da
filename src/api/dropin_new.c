// SPDX-License-Identifier: MIT
// dropin_new.c: the C++ operators, by their mangled names, so that the library needs no C++ runtime
// and an allocation in C++ costs what malloc costs.
//
// A program may replace some of them. The standard says what the others do then: each is made of a simpler one, down to
// new and delete of one object, aligned or not, and calls that. So do ours, by names that the linker resolves to
// whoever's it is (this file is compiled with -fsemantic-interposition); and all are weak, so that a program's own
// comes first in a static link, too.
//
// Every C++ library makes new of one object of malloc, and delete of free. A program may have a malloc of its own, too,
// and give a block of new to its free. So off the fast path ours call these by their names; the fast path is open once
// it is known that all of them are ours.
#include <dlfcn.h>
#include <stdlib.h>

#include "api/dropin_own.h"
#include "api/dropin_runtime.h"
#include "api/family.h"
#include "heap/sized.h"
#include "rt/diag.h"

#define EXPORT __attribute__((visibility("default"), weak))

#define OPERATOR(result, name, symbol, ...)          \
    EXPORT result name(__VA_ARGS__) __asm__(symbol); \
    EXPORT result name(__VA_ARGS__)
// Ours, whoever has the name: is it the one that is called?
#define OWN(result, name, symbol, ...) static result name(__VA_ARGS__) __attribute__((alias(symbol)))

// ---- whose malloc? -------------------------------------------------------------------------------

EXPORT void *new_one(size_t n) __asm__("_Znwm");
EXPORT void *new_array(size_t n) __asm__("_Znam");
EXPORT void *new_one_aligned(size_t n, size_t align) __asm__("_ZnwmSt11align_val_t");
EXPORT void *new_array_aligned(size_t n, size_t align) __asm__("_ZnamSt11align_val_t");
EXPORT void delete_one(void *p) __asm__("_ZdlPv");
EXPORT void delete_array(void *p) __asm__("_ZdaPv");
EXPORT void delete_one_aligned(void *p, size_t align) __asm__("_ZdlPvSt11align_val_t");
EXPORT void delete_array_aligned(void *p, size_t align) __asm__("_ZdaPvSt11align_val_t");
OWN(void *, own_one, "_Znwm", size_t n);
OWN(void *, own_array, "_Znam", size_t n);
OWN(void *, own_one_aligned, "_ZnwmSt11align_val_t", size_t n, size_t align);
OWN(void *, own_array_aligned, "_ZnamSt11align_val_t", size_t n, size_t align);
OWN(void, own_delete_one, "_ZdlPv", void *p);
OWN(void, own_delete_array, "_ZdaPv", void *p);
OWN(void, own_delete_one_aligned, "_ZdlPvSt11align_val_t", void *p, size_t align);
OWN(void, own_delete_array_aligned, "_ZdaPvSt11align_val_t", void *p, size_t align);

// dropin_malloc.c has it. In a static link a program's own malloc keeps that file out, and this is null. A weak
// definition of nulls would not do: clang takes a constant's value from it.
#pragma weak qy_dropin_own

// The classes that the operators take from and give to the cache themselves: all of them (QY_TAG_CLASS), or, if any
// function that they are made of is not ours, and until that was looked at, none: class 0 never has a block, and its
// size is 0. So it costs one `and`.
static uint32_t classes;

static bool is_ours(void) { return __atomic_load_n(&classes, __ATOMIC_RELAXED) != 0; }

// Names are bound for good when we are loaded.
QY_NOINLINE static void look_whose(void) {
    if (!&qy_dropin_own) return;
    if (!QY_SAME(malloc, qy_dropin_own.malloc) || !QY_SAME(free, qy_dropin_own.free) ||
        !QY_SAME(aligned_alloc, qy_dropin_own.aligned_alloc))
        return;
    if (!QY_SAME(new_one, own_one) || !QY_SAME(new_array, own_array) || !QY_SAME(delete_one, own_delete_one) ||
        !QY_SAME(delete_array, own_delete_array))
        return;
    if (!QY_SAME(new_one_aligned, own_one_aligned) || !QY_SAME(new_array_aligned, own_array_aligned)) return;
    if (!QY_SAME(delete_one_aligned, own_delete_one_aligned) ||
        !QY_SAME(delete_array_aligned, own_delete_array_aligned))
        return;
    __atomic_store_n(&classes, QY_TAG_CLASS, __ATOMIC_RELAXED);
}

// As C++ libraries do it: 0 bytes are an object, too, and another's aligned_alloc may refuse what is no multiple of the
// alignment.
QY_NOINLINE static void *by_name(size_t n, size_t align) {
    if (!is_ours()) look_whose();
    n += !n;
    if (!align) return malloc(n);
    size_t padded = (n + align - 1) & ~(align - 1);
    return aligned_alloc(align, is_ours() || padded < n ? n : padded);
}

// As the standard says: call the handler and try again until it gives up. NULL: there is none.
QY_COLD static void *with_handler(size_t n, size_t align) {
    for (qy_new_handler_t handler; (handler = qy_new_handler());) {
        handler();
        void *p = by_name(n, align);
        if (p) return p;
    }
    return NULL;
}

QY_COLD static void *new_failed(size_t n, size_t align) {
    void *p = with_handler(n, align);
    if (p) return p;
    qy_new_throw(n);
}

// What a nothrow form is made of may throw: a handler, or a program's own operator. C cannot catch that. The runtime's
// form of this name can, which calls the throwing one by its name. A program linked with -static has it no more, since
// ours took its place: there nothing catches, and what is thrown ends the program.
typedef void *(*nothrow_t)(size_t n, const void *tag);
typedef void *(*nothrow_aligned_t)(size_t n, size_t align, const void *tag);
typedef void *(*throwing_t)(size_t n);
typedef void *(*throwing_aligned_t)(size_t n, size_t align);

static nothrow_t of_runtime_nothrow(const char *name) {
    return (nothrow_t)(uintptr_t)qy_runtime_symbol(RTLD_NEXT, name);
}
static nothrow_aligned_t of_runtime_nothrow_aligned(const char *name) {
    return (nothrow_aligned_t)(uintptr_t)qy_runtime_symbol(RTLD_NEXT, name);
}

QY_COLD static void *nothrow_failed(size_t n, const void *tag, const char *name) {
    if (!qy_new_handler()) return NULL;
    nothrow_t form = of_runtime_nothrow(name);
    return form ? form(n, tag) : with_handler(n, 0);
}
QY_COLD static void *nothrow_failed_aligned(size_t n, size_t align, const void *tag, const char *name) {
    if (!qy_new_handler()) return NULL;
    nothrow_aligned_t form = of_runtime_nothrow_aligned(name);
    return form ? form(n, align, tag) : with_handler(n, align);
}
QY_COLD static void *nothrow_of_program(size_t n, const void *tag, const char *name, throwing_t throwing) {
    nothrow_t form = of_runtime_nothrow(name);
    return form ? form(n, tag) : throwing(n);
}
QY_COLD static void *nothrow_of_program_aligned(
    size_t n, size_t align, const void *tag, const char *name, throwing_aligned_t throwing) {
    nothrow_aligned_t form = of_runtime_nothrow_aligned(name);
    return form ? form(n, align, tag) : throwing(n, align);
}

#pragma GCC diagnostic ignored "-Wunused-parameter"

// ---- what the others are made of ------------------------------------------------------------------

QY_NOINLINE static void *new_slow(size_t n) {
    void *p = is_ours() ? qy_alloc_slow(n) : by_name(n, 0);
    return QY_LIKELY(p != NULL) ? p : new_failed(n, 0);
}
QY_NOINLINE static void *new_slow_aligned(size_t n, size_t align) {
    void *p = by_name(n, align);
    return QY_LIKELY(p != NULL) ? p : new_failed(n, align);
}

// What the cache has, if all is ours.
QY_INLINE void *pop(size_t n) {
    uint32_t mask = __atomic_load_n(&classes, __ATOMIC_RELAXED);
    qy_cache_t *t = QY_CACHE;
    if (QY_LIKELY(n <= QY_SMALL_MAX)) return qy_alloc_pop(t, t->small[n] & mask);
    return n <= QY_MEDIUM_MAX ? qy_alloc_pop(t, t->cls[qy_step_medium(n)] & mask) : NULL;
}

OPERATOR(void *, new_one, "_Znwm", size_t n) {
    void *p = pop(n);
    return QY_LIKELY(p != NULL) ? p : new_slow(n);
}
OPERATOR(void *, new_one_aligned, "_ZnwmSt11align_val_t", size_t n, size_t align) {
    void *p = QY_LIKELY(is_ours()) ? family_aligned_alloc(align, n) : NULL;
    return QY_LIKELY(p != NULL) ? p : new_slow_aligned(n, align);
}
OPERATOR(void, delete_one, "_ZdlPv", void *p) { free(p); }
OPERATOR(void, delete_one_aligned, "_ZdlPvSt11align_val_t", void *p, size_t align) { free(p); }

// ---- arrays ---------------------------------------------------------------------------------------

OPERATOR(void *, new_array, "_Znam", size_t n) { return new_one(n); }
OPERATOR(void *, new_array_aligned, "_ZnamSt11align_val_t", size_t n, size_t align) {
    return new_one_aligned(n, align);
}
OPERATOR(void, delete_array, "_ZdaPv", void *p) { delete_one(p); }
OPERATOR(void, delete_array_aligned, "_ZdaPvSt11align_val_t", void *p, size_t align) { delete_one_aligned(p, align); }

// ---- with the size --------------------------------------------------------------------------------

// A block of up to 8 KiB of the thread's own heap that has so many bytes is freed here. A class is masked by `classes`,
// so none is while something is another's.
typedef void (*delete_t)(void *p);
QY_NOINLINE static void sized_slow(void *p, size_t n, delete_t simpler) {
    if (is_ours()) family_check_sized(p, 1, n);
    else look_whose();
    simpler(p);
}
QY_INLINE void sized(void *p, size_t n, delete_t simpler) {
    qy_cache_t *t = QY_CACHE;
    size_t c;
    if (QY_LIKELY(qy_is_mine(t, p, &c)) &&
        QY_LIKELY(n - 1 < qy_class_size[c & __atomic_load_n(&classes, __ATOMIC_RELAXED)]))
        qy_free_push(t, c, p);
    else sized_slow(p, n, simpler);
}
static void sized_aligned(void *p, size_t n, size_t align) {
    if (is_ours()) family_check_sized(p, align, n);
}

OPERATOR(void, delete_one_sized, "_ZdlPvm", void *p, size_t n) { sized(p, n, delete_one); }
OPERATOR(void, delete_array_sized, "_ZdaPvm", void *p, size_t n) { sized(p, n, delete_array); }
OPERATOR(void, delete_one_sized_aligned, "_ZdlPvmSt11align_val_t", void *p, size_t n, size_t align) {
    sized_aligned(p, n, align);
    delete_one_aligned(p, align);
}
OPERATOR(void, delete_array_sized_aligned, "_ZdaPvmSt11align_val_t", void *p, size_t n, size_t align) {
    sized_aligned(p, n, align);
    delete_array_aligned(p, align);
}

// ---- without an exception -------------------------------------------------------------------------

QY_NOINLINE static void *nothrow_slow(bool ours, size_t n, const void *tag, const char *name, throwing_t throwing) {
    if (!ours) return nothrow_of_program(n, tag, name, throwing);
    void *p = by_name(n, 0);
    return p ? p : nothrow_failed(n, tag, name);
}
QY_NOINLINE static void *nothrow_slow_aligned(
    bool ours, size_t n, size_t align, const void *tag, const char *name, throwing_aligned_t throwing) {
    if (!ours) return nothrow_of_program_aligned(n, align, tag, name, throwing);
    void *p = by_name(n, align);
    return p ? p : nothrow_failed_aligned(n, align, tag, name);
}

#define NOTHROW "RKSt9nothrow_t"
OPERATOR(void *, new_one_nothrow, "_Znwm" NOTHROW, size_t n, const void *tag) {
    void *p = pop(n);
    return QY_LIKELY(p != NULL) ? p : nothrow_slow(new_one == own_one, n, tag, "_Znwm" NOTHROW, new_one);
}
OPERATOR(void *, new_array_nothrow, "_Znam" NOTHROW, size_t n, const void *tag) {
    void *p = pop(n);
    return QY_LIKELY(p != NULL)
               ? p
               : nothrow_slow(new_one == own_one && new_array == own_array, n, tag, "_Znam" NOTHROW, new_array);
}
#define ALIGNED "St11align_val_t"
OPERATOR(void *, new_one_aligned_nothrow, "_Znwm" ALIGNED NOTHROW, size_t n, size_t align, const void *tag) {
    return nothrow_slow_aligned(
        new_one_aligned == own_one_aligned, n, align, tag, "_Znwm" ALIGNED NOTHROW, new_one_aligned);
}
OPERATOR(void *, new_array_aligned_nothrow, "_Znam" ALIGNED NOTHROW, size_t n, size_t align, const void *tag) {
    return nothrow_slow_aligned(new_one_aligned == own_one_aligned && new_array_aligned == own_array_aligned, n, align,
        tag, "_Znam" ALIGNED NOTHROW, new_array_aligned);
}
OPERATOR(void, delete_one_nothrow, "_ZdlPv" NOTHROW, void *p, const void *tag) { delete_one(p); }
OPERATOR(void, delete_array_nothrow, "_ZdaPv" NOTHROW, void *p, const void *tag) { delete_array(p); }
OPERATOR(void, delete_one_aligned_nothrow, "_ZdlPv" ALIGNED NOTHROW, void *p, size_t align, const void *tag) {
    delete_one_aligned(p, align);
}
OPERATOR(void, delete_array_aligned_nothrow, "_ZdaPv" ALIGNED NOTHROW, void *p, size_t align, const void *tag) {
    delete_array_aligned(p, align);
}
