// SPDX-License-Identifier: MIT
// record_new.c: the C++ operators, recorded, by their mangled names; in libquarry-record only.
//
// The real ones throw through these frames, and nothing of ours runs then: so a failure is recorded by the malloc
// within, where it happens. One that throws without having called malloc by its name is not in the trace.
#include <malloc.h>
#include <stdlib.h>

#include "api/record.h"
#include "os/loaded.h"

typedef enum form {
    NEW,
    NEW_ARRAY,
    NEW_NOTHROW,
    NEW_ARRAY_NOTHROW,
    NEW_ALIGNED,
    NEW_ARRAY_ALIGNED,
    NEW_ALIGNED_NOTHROW,
    NEW_ARRAY_ALIGNED_NOTHROW,
    DELETE,
    DELETE_ARRAY,
    DELETE_SIZED,
    DELETE_ARRAY_SIZED,
    DELETE_NOTHROW,
    DELETE_ARRAY_NOTHROW,
    DELETE_ALIGNED,
    DELETE_ARRAY_ALIGNED,
    DELETE_SIZED_ALIGNED,
    DELETE_ARRAY_SIZED_ALIGNED,
    DELETE_ALIGNED_NOTHROW,
    DELETE_ARRAY_ALIGNED_NOTHROW,
    FORMS
} form_t;

static const char *const symbols[FORMS] = {
    [NEW] = "_Znwm",
    [NEW_ARRAY] = "_Znam",
    [NEW_NOTHROW] = "_ZnwmRKSt9nothrow_t",
    [NEW_ARRAY_NOTHROW] = "_ZnamRKSt9nothrow_t",
    [NEW_ALIGNED] = "_ZnwmSt11align_val_t",
    [NEW_ARRAY_ALIGNED] = "_ZnamSt11align_val_t",
    [NEW_ALIGNED_NOTHROW] = "_ZnwmSt11align_val_tRKSt9nothrow_t",
    [NEW_ARRAY_ALIGNED_NOTHROW] = "_ZnamSt11align_val_tRKSt9nothrow_t",
    [DELETE] = "_ZdlPv",
    [DELETE_ARRAY] = "_ZdaPv",
    [DELETE_SIZED] = "_ZdlPvm",
    [DELETE_ARRAY_SIZED] = "_ZdaPvm",
    [DELETE_NOTHROW] = "_ZdlPvRKSt9nothrow_t",
    [DELETE_ARRAY_NOTHROW] = "_ZdaPvRKSt9nothrow_t",
    [DELETE_ALIGNED] = "_ZdlPvSt11align_val_t",
    [DELETE_ARRAY_ALIGNED] = "_ZdaPvSt11align_val_t",
    [DELETE_SIZED_ALIGNED] = "_ZdlPvmSt11align_val_t",
    [DELETE_ARRAY_SIZED_ALIGNED] = "_ZdaPvmSt11align_val_t",
    [DELETE_ALIGNED_NOTHROW] = "_ZdlPvSt11align_val_tRKSt9nothrow_t",
    [DELETE_ARRAY_ALIGNED_NOTHROW] = "_ZdaPvSt11align_val_tRKSt9nothrow_t",
};

// The real one of each form. They are found before there is a second thread: dlsym() takes a lock that is held while
// constructors run, and one of these may wait for a thread that allocates.
static _Atomic(void *) new_real[FORMS];
static _Atomic bool new_found;

__attribute__((constructor)) static void find_all(void) {
    for (unsigned form = 0; form < FORMS; form++)
        atomic_store_explicit(&new_real[form], qy_real_symbol(symbols[form]), memory_order_relaxed);
    atomic_store(&new_found, true);
}

// Programs may load their C++ runtime later than us, and by names that the global scope doesn't show.
QY_COLD static void *new_find_real(form_t form) {
    static const char *const runtimes[] = {"libstdc++.so.6", "libc++abi.so.1", "libc++.so.1"};
    if (!qy_real.malloc && !qy_real_find()) return NULL;
    if (!atomic_load(&new_found)) find_all();
    void *fn = atomic_load(&new_real[form]);
    for (unsigned i = 0; !fn && i < sizeof runtimes / sizeof runtimes[0]; i++)
        fn = qy_os_function_in(runtimes[i], symbols[form]);
    atomic_store_explicit(&new_real[form], fn, memory_order_release);
    return fn;
}

QY_INLINE void *real_of(form_t form) {
    void *fn = atomic_load_explicit(&new_real[form], memory_order_acquire);
    return QY_LIKELY(fn != NULL) ? fn : new_find_real(form);
}

// A program without a C++ runtime, or one that is not found: what the runtime's would do, but for the exception.
static void *without_runtime(size_t n, size_t align) { return align ? memalign(align, n) : malloc(n); }

// Before the call. False: this is part of another operator, which records it.
static bool new_begins(unsigned by, size_t n, uintptr_t *ret_outer) {
    unsigned part = QY_BY_NOBODY;
    *ret_outer = 0;
    if (!qy_record_ready(qy_record_mine)) {
        if (qy_record_mine == &qy_writer_off) return false;
        // As long as the allocation is still to come it belongs to the outer operator.
        if (qy_hidden(QY_HIDES_NEW, n, &part)) {
            if (part != QY_BY_NOBODY) qy_hide(part == QY_BY_NEW ? QY_HIDES_NEW : QY_HIDES_ALIGNED_NEW, n);
            return false;
        }
    }
    *ret_outer = qy_hide(by == QY_BY_NEW ? QY_HIDES_NEW : QY_HIDES_ALIGNED_NEW, n);
    return true;
}

static void new_ends(
    bool records, uintptr_t outer, unsigned by, size_t n, const void *p, size_t align, const qy_stack_regs_t *caller) {
    if (!records) return;
    bool unseen = qy_show(outer);
    if (p || unseen) qy_allocated(by, n, p, align, caller);  // else malloc has recorded the failure
}

#define CALL(form, align, type, ...)                             \
    void *fn = real_of(form);                                    \
    if (QY_UNLIKELY(!fn)) return without_runtime(n, align);      \
    const unsigned by = (align) ? QY_BY_ALIGNED_NEW : QY_BY_NEW; \
    uintptr_t outer;                                             \
    qy_stack_regs_t caller = QY_STACK_CALLER();                  \
    bool records = new_begins(by, n, &outer);                    \
    void *p = ((type)fn)(__VA_ARGS__);                           \
    new_ends(records, outer, by, n, p, align, &caller);          \
    return p;

typedef void *new_t(size_t n);
typedef void *new_nothrow_t(size_t n, const void *nothrow);
typedef void *new_aligned_t(size_t n, size_t align);
typedef void *new_aligned_nothrow_t(size_t n, size_t align, const void *nothrow);

#define DEFINE_NEW(form, name, symbol)              \
    QY_EXPORT void *name(size_t n) __asm__(symbol); \
    QY_EXPORT void *name(size_t n) { CALL(form, 0, new_t *, n) }
#define DEFINE_NEW_NOTHROW(form, name, symbol)                           \
    QY_EXPORT void *name(size_t n, const void *nothrow) __asm__(symbol); \
    QY_EXPORT void *name(size_t n, const void *nothrow) { CALL(form, 0, new_nothrow_t *, n, nothrow) }
#define DEFINE_NEW_ALIGNED(form, name, symbol)                    \
    QY_EXPORT void *name(size_t n, size_t align) __asm__(symbol); \
    QY_EXPORT void *name(size_t n, size_t align) { CALL(form, align, new_aligned_t *, n, align) }
#define DEFINE_NEW_ALIGNED_NOTHROW(form, name, symbol)                                 \
    QY_EXPORT void *name(size_t n, size_t align, const void *nothrow) __asm__(symbol); \
    QY_EXPORT void *name(size_t n, size_t align, const void *nothrow) {                \
        CALL(form, align, new_aligned_nothrow_t *, n, align, nothrow)                  \
    }

DEFINE_NEW(NEW, new_one, "_Znwm")
DEFINE_NEW(NEW_ARRAY, new_array, "_Znam")
DEFINE_NEW_NOTHROW(NEW_NOTHROW, new_one_nothrow, "_ZnwmRKSt9nothrow_t")
DEFINE_NEW_NOTHROW(NEW_ARRAY_NOTHROW, new_array_nothrow, "_ZnamRKSt9nothrow_t")
DEFINE_NEW_ALIGNED(NEW_ALIGNED, new_one_aligned, "_ZnwmSt11align_val_t")
DEFINE_NEW_ALIGNED(NEW_ARRAY_ALIGNED, new_array_aligned, "_ZnamSt11align_val_t")
DEFINE_NEW_ALIGNED_NOTHROW(NEW_ALIGNED_NOTHROW, new_one_aligned_nothrow, "_ZnwmSt11align_val_tRKSt9nothrow_t")
DEFINE_NEW_ALIGNED_NOTHROW(NEW_ARRAY_ALIGNED_NOTHROW, new_array_aligned_nothrow, "_ZnamSt11align_val_tRKSt9nothrow_t")

// The free within is of the same block.
QY_INLINE uintptr_t delete_begins(unsigned by, void *p) {
    unsigned part;
    if (qy_record_ready(qy_record_mine) || !qy_hidden((uintptr_t)p, 0, &part)) qy_freed(by, p);
    return qy_hide(p ? (uintptr_t)p : QY_HIDES_ALL, 0);
}

#define DEFINE_DELETE(form, by, name, symbol, parameters, type_, ...) \
    QY_EXPORT void name parameters __asm__(symbol);                   \
    QY_EXPORT void name parameters {                                  \
        void *fn = real_of(form);                                     \
        if (qy_is_early(p)) return;                                   \
        if (QY_UNLIKELY(!fn)) {                                       \
            free(p);                                                  \
            return;                                                   \
        }                                                             \
        uintptr_t outer = delete_begins(by, p);                       \
        ((void(*) type_)fn)(__VA_ARGS__);                             \
        qy_show(outer);                                               \
    }

#define ONE (void *p)
#define SIZED (void *p, size_t n)
#define NOTHROW (void *p, const void *nothrow)
#define ALIGNED (void *p, size_t align)
#define SIZED_ALIGNED (void *p, size_t n, size_t align)
#define ALIGNED_NOTHROW (void *p, size_t align, const void *nothrow)

DEFINE_DELETE(DELETE, QY_FREE_DELETE, delete_one, "_ZdlPv", ONE, ONE, p)
DEFINE_DELETE(DELETE_ARRAY, QY_FREE_DELETE, delete_array, "_ZdaPv", ONE, ONE, p)
DEFINE_DELETE(DELETE_SIZED, QY_FREE_SIZED, delete_one_sized, "_ZdlPvm", SIZED, SIZED, p, n)
DEFINE_DELETE(DELETE_ARRAY_SIZED, QY_FREE_SIZED, delete_array_sized, "_ZdaPvm", SIZED, SIZED, p, n)
DEFINE_DELETE(DELETE_NOTHROW, QY_FREE_DELETE, delete_one_nothrow, "_ZdlPvRKSt9nothrow_t", NOTHROW, NOTHROW, p, nothrow)
DEFINE_DELETE(
    DELETE_ARRAY_NOTHROW, QY_FREE_DELETE, delete_array_nothrow, "_ZdaPvRKSt9nothrow_t", NOTHROW, NOTHROW, p, nothrow)
DEFINE_DELETE(DELETE_ALIGNED, QY_FREE_DELETE, delete_one_aligned, "_ZdlPvSt11align_val_t", ALIGNED, ALIGNED, p, align)
DEFINE_DELETE(
    DELETE_ARRAY_ALIGNED, QY_FREE_DELETE, delete_array_aligned, "_ZdaPvSt11align_val_t", ALIGNED, ALIGNED, p, align)
DEFINE_DELETE(DELETE_SIZED_ALIGNED, QY_FREE_SIZED, delete_one_sized_aligned, "_ZdlPvmSt11align_val_t", SIZED_ALIGNED,
    SIZED_ALIGNED, p, n, align)
DEFINE_DELETE(DELETE_ARRAY_SIZED_ALIGNED, QY_FREE_SIZED, delete_array_sized_aligned, "_ZdaPvmSt11align_val_t",
    SIZED_ALIGNED, SIZED_ALIGNED, p, n, align)
DEFINE_DELETE(DELETE_ALIGNED_NOTHROW, QY_FREE_DELETE, delete_one_aligned_nothrow, "_ZdlPvSt11align_val_tRKSt9nothrow_t",
    ALIGNED_NOTHROW, ALIGNED_NOTHROW, p, align, nothrow)
DEFINE_DELETE(DELETE_ARRAY_ALIGNED_NOTHROW, QY_FREE_DELETE, delete_array_aligned_nothrow,
    "_ZdaPvSt11align_val_tRKSt9nothrow_t", ALIGNED_NOTHROW, ALIGNED_NOTHROW, p, align, nothrow)
