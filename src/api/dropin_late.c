// SPDX-License-Identifier: MIT
// dropin_late.c: functions of others that few processes need, in libquarry-malloc only, shared, for glibc.
//
// A function that a library refers to by its name is looked for in each process that starts, through all its files: 500
// to 900 instructions. These are looked for when they are called, in libc's own table: some 600 instructions, no lock
// and no memory. The library's other files call them by their names, which here are hidden: so they come here.
// Two addresses are kept, which each birth of a thread needs; what a program may write to, an attacker may, too. What a
// start calls, and errno's place, the loader finds: the first call of this kind touches pages of libc that few programs
// have. Elsewhere it finds all.
#include <stdint.h>

#include "api/dropin_runtime.h"
#include "os/libc.h"
#include "os/loaded.h"
#include "os/streams.h"

#ifdef __GLIBC__
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/auxv.h>

#include "base/compiler.h"

typedef void call_t(void);

static call_t *find_late(const char *name) {
    void *found = qy_os_libc_function(name);
    if (!found && !qy_os_libc_is_known()) found = qy_os_symbol_next(name);
    return (call_t *)(uintptr_t)found;
}

qy_os_streams_calls_t qy_os_streams_calls(void) {
    return (qy_os_streams_calls_t){
        find_late("_IO_list_lock"), find_late("_IO_list_unlock"), find_late("_IO_list_resetlock")};
}

// Without it, as without libc 2.32, there may be others.
const char *qy_os_streams_single(void) { return qy_os_libc_variable("__libc_single_threaded"); }

// Nothing of a C++ runtime is linked into this library: dlsym says what the process has.
qy_runtime_linked_t qy_runtime_linked(void) { return (qy_runtime_linked_t){NULL, NULL}; }

#if defined(DLFO_STRUCT_HAS_EH_DBASE) && (defined(__x86_64__) || defined(__aarch64__))
#define LATE(name) ((__typeof__(name) *)(uintptr_t)qy_os_libc_function(#name))
#define KEPT(name)                                                                             \
    __extension__({                                                                            \
        static __typeof__(name) *found;                                                        \
        __typeof__(name) *call = __atomic_load_n(&found, __ATOMIC_RELAXED);                    \
        if (QY_UNLIKELY(!call)) __atomic_store_n(&found, call = LATE(name), __ATOMIC_RELAXED); \
        call;                                                                                  \
    })

QY_HIDDEN unsigned long getauxval(unsigned long type) { return LATE(getauxval)(type); }

QY_HIDDEN int pthread_getcpuclockid(pthread_t thread, clockid_t *ret) {
    return KEPT(pthread_getcpuclockid)(thread, ret);
}
QY_HIDDEN int pthread_setspecific(pthread_key_t key, const void *value) {
    return KEPT(pthread_setspecific)(key, value);
}
QY_HIDDEN int pthread_key_delete(pthread_key_t key) { return LATE(pthread_key_delete)(key); }

// Who calls these two says into which namespace they look: any function of this library.
QY_HIDDEN int dl_iterate_phdr(int (*fn)(struct dl_phdr_info *info, size_t bytes, void *arg), void *arg) {
    return LATE(dl_iterate_phdr)(fn, arg);
}
QY_HIDDEN void *dlvsym(void *scope, const char *name, const char *version) {
    return LATE(dlvsym)(scope, name, version);
}
QY_HIDDEN int dlclose(void *file) { return LATE(dlclose)(file); }

QY_HIDDEN int fprintf(FILE *out, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = LATE(vfprintf)(out, format, args);
    va_end(args);
    return n;
}

// The constructor is told the program's name.
QY_HIDDEN char *program_invocation_short_name;

QY_HIDDEN int clone(int (*fn)(void *arg), void *stack, int flags, void *arg, ...) {
    va_list args;
    va_start(args, arg);
    void *parent_tid = va_arg(args, void *), *tls = va_arg(args, void *), *child_tid = va_arg(args, void *);
    va_end(args);
    return LATE(clone)(fn, stack, flags, arg, parent_tid, tls, child_tid);
}
#endif

#else
typedef int qy_dropin_late_is_empty;
#endif
