// SPDX-License-Identifier: MIT
// check_new.c: the C++ operators by their mangled names, checked; in libquarry-check only.
//
// Each operator is an operation of its own here, so that a block knows which one made it. The standard makes them of
// each other: where a program has replaced one, or malloc or free, the rest call what they are made of by its name, as
// in dropin_new.c. Compiled with -fexceptions and -fsemantic-interposition.
#include <dlfcn.h>
#include <stdlib.h>

#include "api/dropin_own.h"
#include "api/dropin_runtime.h"
#include "base/compiler.h"
#include "base/num.h"
#include "check/block.h"
#include "check/mismatch.h"
#include "os/loaded.h"

#define EXPORT __attribute__((visibility("default"), weak))
#define NEW(name, symbol, ...)                      \
    EXPORT void *name(__VA_ARGS__) __asm__(symbol); \
    EXPORT void *name(__VA_ARGS__)

EXPORT void *check_new_one(size_t n) __asm__("_Znwm");
EXPORT void *check_new_array(size_t n) __asm__("_Znam");
EXPORT void *check_new_one_aligned(size_t n, size_t align) __asm__("_ZnwmSt11align_val_t");
EXPORT void *check_new_array_aligned(size_t n, size_t align) __asm__("_ZnamSt11align_val_t");
EXPORT void check_delete_one(void *p) __asm__("_ZdlPv");
EXPORT void check_delete_array(void *p) __asm__("_ZdaPv");
EXPORT void check_delete_one_aligned(void *p, size_t align) __asm__("_ZdlPvSt11align_val_t");
EXPORT void check_delete_array_aligned(void *p, size_t align) __asm__("_ZdaPvSt11align_val_t");
static void *check_own_one(size_t n) __attribute__((alias("_Znwm")));
static void *check_own_array(size_t n) __attribute__((alias("_Znam")));
static void *check_own_one_aligned(size_t n, size_t align) __attribute__((alias("_ZnwmSt11align_val_t")));
static void *check_own_array_aligned(size_t n, size_t align) __attribute__((alias("_ZnamSt11align_val_t")));
static void check_own_delete(void *p) __attribute__((alias("_ZdlPv")));
static void check_own_delete_array(void *p) __attribute__((alias("_ZdaPv")));
static void check_own_delete_aligned(void *p, size_t align) __attribute__((alias("_ZdlPvSt11align_val_t")));
static void check_own_delete_array_aligned(void *p, size_t align) __attribute__((alias("_ZdaPvSt11align_val_t")));

// Whoever has the name: is it ours that is called? A program without position-independent code that takes a function's
// address has a stub for it.
#define IS_OURS(function, own, name) (QY_SAME(function, own) || !qy_os_defines((uintptr_t)(function), name))

// Names are bound for good when the library is loaded.
__attribute__((constructor(102))) static void operators_look(void) {
    bool mallocs = IS_OURS(malloc, qy_dropin_own.malloc, "malloc") && IS_OURS(free, qy_dropin_own.free, "free");
    bool news = IS_OURS(check_new_one, check_own_one, "_Znwm") && IS_OURS(check_new_array, check_own_array, "_Znam") &&
                IS_OURS(check_new_one_aligned, check_own_one_aligned, "_ZnwmSt11align_val_t") &&
                IS_OURS(check_new_array_aligned, check_own_array_aligned, "_ZnamSt11align_val_t");
    bool deletes = IS_OURS(check_delete_one, check_own_delete, "_ZdlPv") &&
                   IS_OURS(check_delete_array, check_own_delete_array, "_ZdaPv") &&
                   IS_OURS(check_delete_one_aligned, check_own_delete_aligned, "_ZdlPvSt11align_val_t") &&
                   IS_OURS(check_delete_array_aligned, check_own_delete_array_aligned, "_ZdaPvSt11align_val_t");
    qy_check_malloc_mixed = !mallocs;
    qy_check_operators_mixed = !mallocs || !news || !deletes;
}

// ---- new ----------------------------------------------------------------------------------------------------------

static void *operator_alloc(const qy_check_call_t *call, size_t n, size_t align) {
    size_t least = align > QY_ALIGN_MIN ? align : QY_ALIGN_MIN;
    if (QY_LIKELY(!qy_check_malloc_mixed)) return qy_check_alloc(call, least, n, align);
    return align ? aligned_alloc(align, n) : malloc(n + !n);
}

// As the standard says: call the handler and try again until it gives up.
QY_COLD static void *operator_handler(const qy_check_call_t *call, size_t n, size_t align) {
    for (qy_new_handler_t handler; (handler = qy_new_handler());) {
        handler();
        void *p = operator_alloc(call, n, align);
        if (p) return p;
    }
    return NULL;
}

static void *operator_new(const qy_check_call_t *call, size_t n, size_t align) {
    void *p = operator_alloc(call, n, align);
    if (QY_LIKELY(p != NULL) || (p = operator_handler(call, n, align))) return p;
    qy_new_throw(n);
}

#define CALL(name, family) \
    const qy_check_call_t call = {name, family, QY_STACK_CALLER()}

NEW(check_new_one, "_Znwm", size_t n) {
    CALL("operator new", QY_CHECK_NEW);
    return operator_new(&call, n, 0);
}
NEW(check_new_one_aligned, "_ZnwmSt11align_val_t", size_t n, size_t align) {
    CALL("operator new", QY_CHECK_NEW);
    return operator_new(&call, n, align);
}
NEW(check_new_array, "_Znam", size_t n) {
    if (QY_UNLIKELY(qy_check_operators_mixed)) return check_new_one(n);
    CALL("operator new[]", QY_CHECK_NEW_ARRAY);
    return operator_new(&call, n, 0);
}
NEW(check_new_array_aligned, "_ZnamSt11align_val_t", size_t n, size_t align) {
    if (QY_UNLIKELY(qy_check_operators_mixed)) return check_new_one_aligned(n, align);
    CALL("operator new[]", QY_CHECK_NEW_ARRAY);
    return operator_new(&call, n, align);
}

// A handler, or a program's own operator, may throw, and C cannot catch. The runtime's form of this name can, which
// calls the throwing one by its name.
static bool may_throw(void) { return qy_check_operators_mixed || qy_new_handler(); }
static void *nothrow_by_runtime(const char *symbol, size_t n, const void *tag) {
    void *(*form)(size_t, const void *) =
        (void *(*)(size_t, const void *))(uintptr_t)qy_runtime_symbol(RTLD_NEXT, symbol);
    return form ? form(n, tag) : NULL;
}
static void *nothrow_by_runtime_aligned(const char *symbol, size_t n, size_t align, const void *tag) {
    void *(*form)(size_t, size_t, const void *) =
        (void *(*)(size_t, size_t, const void *))(uintptr_t)qy_runtime_symbol(RTLD_NEXT, symbol);
    return form ? form(n, align, tag) : NULL;
}

#define NOTHROW_ONE "_ZnwmRKSt9nothrow_t"
#define NOTHROW_ARRAY "_ZnamRKSt9nothrow_t"
#define NOTHROW_ONE_ALIGNED "_ZnwmSt11align_val_tRKSt9nothrow_t"
#define NOTHROW_ARRAY_ALIGNED "_ZnamSt11align_val_tRKSt9nothrow_t"
NEW(check_new_one_nothrow, NOTHROW_ONE, size_t n, const void *tag) {
    CALL("operator new", QY_CHECK_NEW);
    void *p = qy_check_operators_mixed ? NULL : operator_alloc(&call, n, 0);
    return p || !may_throw() ? p : nothrow_by_runtime(NOTHROW_ONE, n, tag);
}
NEW(check_new_array_nothrow, NOTHROW_ARRAY, size_t n, const void *tag) {
    CALL("operator new[]", QY_CHECK_NEW_ARRAY);
    void *p = qy_check_operators_mixed ? NULL : operator_alloc(&call, n, 0);
    return p || !may_throw() ? p : nothrow_by_runtime(NOTHROW_ARRAY, n, tag);
}
NEW(check_new_one_aligned_nothrow, NOTHROW_ONE_ALIGNED, size_t n, size_t align, const void *tag) {
    CALL("operator new", QY_CHECK_NEW);
    void *p = qy_check_operators_mixed ? NULL : operator_alloc(&call, n, align);
    return p || !may_throw() ? p : nothrow_by_runtime_aligned(NOTHROW_ONE_ALIGNED, n, align, tag);
}
NEW(check_new_array_aligned_nothrow, NOTHROW_ARRAY_ALIGNED, size_t n, size_t align, const void *tag) {
    CALL("operator new[]", QY_CHECK_NEW_ARRAY);
    void *p = qy_check_operators_mixed ? NULL : operator_alloc(&call, n, align);
    return p || !may_throw() ? p : nothrow_by_runtime_aligned(NOTHROW_ARRAY_ALIGNED, n, align, tag);
}

// ---- delete -------------------------------------------------------------------------------------------------------

static void operator_delete(const qy_check_call_t *call, void *p, const qy_check_claim_t *claim) {
    if (QY_LIKELY(!qy_check_malloc_mixed)) qy_check_free(call, p, claim);
    else free(p);
}

// The form `name` ends a block with this claim; where some operators are the program's own, by the simpler form.
#define FORM(name, symbol, parameters, simpler, function, family, ...)               \
    EXPORT void name parameters __asm__(symbol);                                     \
    EXPORT void name parameters {                                                    \
        CALL(function, family);                                                      \
        const qy_check_claim_t claim = {.has_align = true, __VA_ARGS__};             \
        if (QY_LIKELY(!qy_check_operators_mixed)) operator_delete(&call, p, &claim); \
        else simpler;                                                                \
    }

#define ONE (void *p)
#define SIZED (void *p, size_t n)
#define ALIGNED (void *p, size_t align)
#define SIZED_ALIGNED (void *p, size_t n, size_t align)
#define TAGGED (void *p, const void *tag)
#define ALIGNED_TAGGED (void *p, size_t align, const void *tag)
#define FORMS(one, symbol, function, family, base, base_aligned)                                                   \
    FORM(one, symbol, ONE, base, function, family, .align = 0)                                                     \
    FORM(one##_aligned, symbol "St11align_val_t", ALIGNED, base_aligned, function, family, .align = align)         \
    FORM(one##_sized, symbol "m", SIZED, one(p), function, family, .has_size = true, .size = n)                    \
    FORM(one##_sized_aligned, symbol "mSt11align_val_t", SIZED_ALIGNED, one##_aligned(p, align), function, family, \
        .has_size = true, .size = n, .align = align)                                                               \
    FORM(one##_nothrow, symbol "RKSt9nothrow_t", TAGGED, one(p), function, family, .align = 0)                     \
    FORM(one##_aligned_nothrow, symbol "St11align_val_tRKSt9nothrow_t", ALIGNED_TAGGED, one##_aligned(p, align),   \
        function, family, .align = align)

#pragma GCC diagnostic ignored "-Wunused-parameter"

FORMS(check_delete_one, "_ZdlPv", "operator delete", QY_CHECK_NEW, operator_delete(&call, p, &claim),
    operator_delete(&call, p, &claim))
FORMS(check_delete_array, "_ZdaPv", "operator delete[]", QY_CHECK_NEW_ARRAY, check_delete_one(p),
    check_delete_one_aligned(p, align))
