// SPDX-License-Identifier: MIT
// dropin_fork.c: the calls after which the heap needs its handlers of forks (heap/atfork.h); in libquarry-malloc only,
// shared, for glibc.
//
// Each call registers the heap's handlers and goes on to the next function of its name. A thread that the C library
// makes for itself does not come here: the heap sees it when it allocates. A file that was opened with RTLD_DEEPBIND
// does not come here either: dropin_dlopen.c sees to that one.
#include <errno.h>
#include <pthread.h>
#include <threads.h>

#include "heap/atfork.h"
#include "os/libc.h"
#include "os/loaded.h"
#include "os/os.h"

#ifdef __GLIBC__
#define EXPORT __attribute__((visibility("default")))

typedef int register_fn_t(qy_atfork_t *prepare, qy_atfork_t *parent, qy_atfork_t *child, void *module);
typedef int posix_create_t(pthread_t *ret, const pthread_attr_t *attr, void *(*start)(void *), void *arg);
typedef int c11_create_t(thrd_t *ret, thrd_start_t start, void *arg);

#define REGISTER "__register_atfork"

bool qy_atfork_may_wait(void) { return qy_os_libc_is_known(); }

// The heap's own handlers go to libc's function, whose name is taken below. They are of no module that may be closed.
int qy_atfork_register(qy_atfork_t *prepare, qy_atfork_t *parent, qy_atfork_t *child) {
    register_fn_t *real = (register_fn_t *)(uintptr_t)qy_os_libc_function(REGISTER);
    if (!real) real = (register_fn_t *)(uintptr_t)qy_os_symbol_next(REGISTER);
    return real ? real(prepare, parent, child, NULL) : ENOSYS;
}

// What pthread_atfork, which is a part of each program, calls.
EXPORT register_fn_t dropin_register __asm__(REGISTER);
EXPORT int dropin_register(qy_atfork_t *prepare, qy_atfork_t *parent, qy_atfork_t *child, void *module) {
    qy_atfork_needed();
    register_fn_t *real = (register_fn_t *)(uintptr_t)qy_os_symbol_next(REGISTER);
    return real ? real(prepare, parent, child, module) : ENOSYS;
}

// Behind a filter that refuses SIG_BLOCK, as tor's does, glibc's pthread_create sets the signal mask that it was not
// told: what lies where its frame comes to be. Calls from here leave their own words there, by which tor heard no
// SIGINT any more. So the thread's mask is left there.
#define LEFT_WORDS 128  // pthread_create puts its mask within these: tests/field/05-sandboxed
QY_NOINLINE static void leave_mask_on_stack(void) {
    uint64_t left[LEFT_WORDS], mask = qy_os_signals_kept_out();
    for (unsigned i = 0; i < LEFT_WORDS; i++) left[i] = mask;
    __asm__ volatile("" ::"r"(left)
                     : "memory");  // somebody reads it
}

EXPORT int pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*start)(void *), void *arg) {
    static posix_create_t *found;
    posix_create_t *real = __atomic_load_n(&found, __ATOMIC_RELAXED);
    qy_atfork_needed();
    if (!real) {
        real = (posix_create_t *)(uintptr_t)qy_os_symbol_next("pthread_create");
        __atomic_store_n(&found, real, __ATOMIC_RELAXED);
        leave_mask_on_stack();
    }
    return real ? real(ret, attr, start, arg) : EAGAIN;
}

EXPORT int thrd_create(thrd_t *ret, thrd_start_t start, void *arg) {
    static c11_create_t *found;
    c11_create_t *real = __atomic_load_n(&found, __ATOMIC_RELAXED);
    qy_atfork_needed();
    if (!real) {
        real = (c11_create_t *)(uintptr_t)qy_os_symbol_next("thrd_create");
        __atomic_store_n(&found, real, __ATOMIC_RELAXED);
        leave_mask_on_stack();
    }
    return real ? real(ret, start, arg) : thrd_error;
}

#else
typedef int qy_dropin_fork_is_empty;
#endif
