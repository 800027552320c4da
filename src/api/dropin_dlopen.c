// SPDX-License-Identifier: MIT
// dropin_dlopen.c: what is opened with RTLD_DEEPBIND finds the program's malloc.
//
// Such a file looks for a name in itself and in what it was linked with before it looks into the program: so its malloc
// and free are the C library's, while those of what it calls are ours; a block that one allocates and the other frees
// ends the process. Hosts open plug-ins so (PHP its extensions, Apache its modules), to keep their other names apart.
// So before the first of them is opened, the C library's own table gets the addresses that the program has for these
// names. The flag stays, and means for all other names what it did.
//
// Who asks a file that was opened for its malloc or free (Python's ctypes: lib.free) finds the C library's in the same
// way, and so does who opens that one itself. That is seen to by dlsym, likewise before the first.
//
// dlopen and dlsym know by the address they return to who called: whose RUNPATH and $ORIGIN count, into which namespace
// the file goes, and what is next. So ours are no calls but a step on the way: they look at the arguments, and jump.
#include <dlfcn.h>

#if defined(RTLD_DEEPBIND) && defined(__LP64__) && (defined(__x86_64__) || defined(__aarch64__))
#include <limits.h>
#include <stdatomic.h>
#include <string.h>

#include "api/dropin_runtime.h"
#include "base/compiler.h"
#include "os/libc.h"
#include "os/loaded.h"
#include "os/os.h"
#include "os/rebind.h"

// One after the other, since a table of pointers would be relocated in every process. The C library has most of them.
static const char dlopen_names[] =
    "malloc\0free\0calloc\0realloc\0reallocarray\0memalign\0aligned_alloc\0posix_"
    "memalign\0valloc\0pvalloc\0cfree\0free_sized\0"
    "free_aligned_sized\0malloc_usable_size\0malloc_trim\0malloc_stats\0malloc_info\0mallinfo\0mallinfo2\0mallopt\0__"
    "libc_malloc\0"
    "__libc_free\0__libc_calloc\0__libc_realloc\0__libc_memalign\0__libc_valloc\0__libc_pvalloc\0__posix_memalign\0";

// One thread at a time writes to the table. It says who by its process: in the child of a fork nobody does.
static _Atomic uint32_t writing;
static void begin_writing(void) {
    uint32_t me = (uint32_t)qy_os_process_id(), other = 0;
    while (!atomic_compare_exchange_weak_explicit(&writing, &other, me, memory_order_acquire, memory_order_relaxed)) {
        if (other != me) continue;
        qy_os_wait(&writing, me, 0);
        other = 0;
    }
}
static void end_writing(void) {
    atomic_store_explicit(&writing, 0, memory_order_release);
    qy_os_wake(&writing, INT_MAX);
}

// False: it cannot be done here.
QY_COLD static bool bind_to_the_program(void) {
    static atomic_bool done;
    if (atomic_load_explicit(&done, memory_order_acquire)) return true;
    qy_os_rebind_t r = {.inside = qy_os_libc_inside()};
    for (const char *name = dlopen_names; *name; name += strlen(name) + 1) {
        const void *function = qy_os_symbol(name);
        if (function) qy_os_rebind_add(&r, name, function);
    }
    begin_writing();
    bool bound = qy_os_rebind(&r);
    end_writing();
    if (bound) atomic_store_explicit(&done, true, memory_order_release);
    return bound;
}

static bool is_of_malloc(const char *name) {
    for (const char *n = dlopen_names; *n; n += strlen(n) + 1)
        if (strcmp(n, name) == 0) return true;
    return false;
}

// Such a file finds the C library's own functions that register handlers of forks and make threads, and not those of
// dropin_fork.c. The library of the pow2 pool has no heap, and so nothing to register.
QY_HIDDEN void qy_atfork_needed(void);
__attribute__((weak)) void qy_atfork_needed(void) {}

static int flags_for(int flags) {
    bool deep = (flags & RTLD_DEEPBIND) && !(flags & RTLD_NOLOAD);
    if (deep) qy_atfork_needed();
    return !deep || bind_to_the_program() ? flags : flags & ~RTLD_DEEPBIND;
}

static void *dlopen_nobody(void) { return NULL; }  // a C library before 2.34, without its libdl

static void *dlopen_real(void **found, const char *name) {
    void *f = __atomic_load_n(found, __ATOMIC_RELAXED);
    if (!f) {
        f = qy_os_symbol_next(name);
        __atomic_store_n(found, f, __ATOMIC_RELAXED);
    }
    return f ? f : (void *)(uintptr_t)dlopen_nobody;
}

// What the functions below call with their arguments, which it may change. Returns where to jump.
QY_HIDDEN void *qy_dlopen_prepare(uintptr_t arg[3]);
QY_HIDDEN void *qy_dlmopen_prepare(uintptr_t arg[3]);
QY_HIDDEN void *qy_dlsym_prepare(uintptr_t arg[3]);

__attribute__((used)) void *qy_dlopen_prepare(uintptr_t arg[3]) {
    static void *found;
    arg[1] = (unsigned)flags_for((int)arg[1]);
    return dlopen_real(&found, "dlopen");
}
__attribute__((used)) void *qy_dlmopen_prepare(uintptr_t arg[3]) {
    static void *found;
    // In another namespace there is another C library.
    if ((Lmid_t)arg[0] == LM_ID_BASE) arg[2] = (unsigned)flags_for((int)arg[2]);
    return dlopen_real(&found, "dlmopen");
}

// dlsym is not asked for itself, but for its version in the C library, as all others in the chain have, too.
#ifdef __x86_64__
#define FIRST_VERSION "GLIBC_2.2.5"
#else
#define FIRST_VERSION "GLIBC_2.17"
#endif
__attribute__((used)) void *qy_dlsym_prepare(uintptr_t arg[3]) {
    static void *found;
    void *handle = (void *)arg[0], *f = __atomic_load_n(&found, __ATOMIC_RELAXED);
    const char *name = (const char *)arg[1];
    if (!f) __atomic_store_n(&found, f = dlvsym(RTLD_NEXT, "dlsym", FIRST_VERSION), __ATOMIC_RELAXED);
    if (handle != RTLD_DEFAULT && handle != RTLD_NEXT && name && is_of_malloc(name)) bind_to_the_program();
    return f ? f : (void *)(uintptr_t)dlopen_nobody;
}

// The arguments, kept on the stack, are what is handed on; ENTRY and LEAVE are all that a processor has of its own
// here.
#ifdef __x86_64__
#define ENTRY                                \
    "push %rdx\n .cfi_adjust_cfa_offset 8\n" \
    "push %rsi\n .cfi_adjust_cfa_offset 8\n" \
    "push %rdi\n .cfi_adjust_cfa_offset 8\n" \
    "mov %rsp, %rdi\n"                       \
    "call "
#define LEAVE                                \
    "pop %rdi\n .cfi_adjust_cfa_offset -8\n" \
    "pop %rsi\n .cfi_adjust_cfa_offset -8\n" \
    "pop %rdx\n .cfi_adjust_cfa_offset -8\n" \
    "jmp *%rax\n"
#else
#define ENTRY                                           \
    "stp x29, x30, [sp, -48]!\n"                        \
    ".cfi_adjust_cfa_offset 48\n"                       \
    ".cfi_rel_offset x29, 0\n .cfi_rel_offset x30, 8\n" \
    "stp x0, x1, [sp, 16]\n"                            \
    "str x2, [sp, 32]\n"                                \
    "add x0, sp, 16\n"                                  \
    "bl "
#define LEAVE                               \
    "mov x16, x0\n"                         \
    "ldp x0, x1, [sp, 16]\n"                \
    "ldr x2, [sp, 32]\n"                    \
    "ldp x29, x30, [sp], 48\n"              \
    ".cfi_restore x29\n .cfi_restore x30\n" \
    ".cfi_adjust_cfa_offset -48\n"          \
    "br x16\n"
#endif
#define STEP(name)                                                                                           \
    __asm__(".pushsection .text." #name ", \"ax\", %progbits\n .p2align 4\n .globl " #name "\n .type " #name \
            ", %function\n" #name ":\n .hidden qy_own_" #name "\n .globl qy_own_" #name "\nqy_own_" #name    \
            ":\n .cfi_startproc\n" ENTRY "qy_" #name "_prepare\n" LEAVE                                      \
            ".cfi_endproc\n .size " #name ", . - " #name "\n .popsection\n")
STEP(dlopen);
STEP(dlmopen);
STEP(dlsym);

// For this library's own calls.
QY_HIDDEN void *qy_own_dlsym(void *scope, const char *name);
QY_HIDDEN void *qy_own_dlopen(const char *name, int flags);
void *qy_os_dlsym(void *scope, const char *name) { return qy_own_dlsym(scope, name); }
void *qy_runtime_file(const char *name) { return qy_own_dlopen(name, RTLD_LAZY | RTLD_NOLOAD); }
#endif
