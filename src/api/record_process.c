// SPDX-License-Identifier: MIT
// record_process.c: what a program does besides allocating that its trace must know; in libquarry-record only.
#include <errno.h>
#include <sys/types.h>

#include "api/record.h"

int dlclose(void *handle);
pid_t fork(void);

typedef int dlclose_t(void *handle);
typedef pid_t fork_t(void);

// The end, and children, are seen to by handlers that are registered then.
__attribute__((constructor)) static void begin(void) {
    if (qy_real.malloc || qy_real_find()) qy_record_writer();
}

static void *real_of(_Atomic(void *) *cached, const char *name) {
    void *fn = atomic_load(cached);
    if (!fn) atomic_store(cached, fn = qy_real_symbol(name, false));
    return fn;
}

QY_EXPORT int dlclose(void *handle) {
    static _Atomic(void *) real;
    dlclose_t *fn = (dlclose_t *)real_of(&real, "dlclose");
    int r = fn ? fn(handle) : -1;
    qy_record_unloaded();
    return r;
}

// The handlers of fork don't know the child's number.
QY_EXPORT pid_t fork(void) {
    static _Atomic(void *) real;
    fork_t *fn = (fork_t *)real_of(&real, "fork");
    pid_t child = fn ? fn() : -1;
    qy_writer_t *w = qy_record_mine;
    if (child > 0 && qy_record_ready(w)) {
        if (qy_writer_begin(w)) qy_write_numbers(w, QY_OP_PROCESS, QY_PROCESS_FORK, qy_os_ticks(), 1, (uint64_t)child, 0);
        qy_writer_end(w);
    }
    return child;
}

// ---- handlers that the program registers ---------------------------------------------------------------------------

// What atexit, at_quick_exit and pthread_atfork call, in whichever library.
int cxa_atexit(void (*fn)(void *arg), void *arg, void *library) __asm__("__cxa_atexit");
int cxa_at_quick_exit(void (*fn)(void *unused), void *library) __asm__("__cxa_at_quick_exit");
int on_exit(void (*fn)(int status, void *arg), void *arg);
int register_atfork(void (*before)(void), void (*parent)(void), void (*child)(void), void *library) __asm__("__register_atfork");

// The C library allocates for handlers with a lock taken, and a recording that begins takes it for handlers of its own. So it
// doesn't begin within such a call, but before.
static void *real_register(_Atomic(void *) *cached, const char *name) {
    if (atomic_load(&qy_record.state) == QY_RECORD_COLD) begin();
    return real_of(cached, name);
}

QY_EXPORT int cxa_atexit(void (*fn)(void *arg), void *arg, void *library) {
    static _Atomic(void *) real;
    __typeof__(cxa_atexit) *call = real_register(&real, "__cxa_atexit");
    return call ? call(fn, arg, library) : -1;
}

QY_EXPORT int cxa_at_quick_exit(void (*fn)(void *unused), void *library) {
    static _Atomic(void *) real;
    __typeof__(cxa_at_quick_exit) *call = real_register(&real, "__cxa_at_quick_exit");
    return call ? call(fn, library) : -1;
}

QY_EXPORT int on_exit(void (*fn)(int status, void *arg), void *arg) {
    static _Atomic(void *) real;
    __typeof__(on_exit) *call = real_register(&real, "on_exit");
    return call ? call(fn, arg) : -1;
}

QY_EXPORT int register_atfork(void (*before)(void), void (*parent)(void), void (*child)(void), void *library) {
    static _Atomic(void *) real;
    __typeof__(register_atfork) *call = real_register(&real, "__register_atfork");
    return call ? call(before, parent, child, library) : ENOMEM;
}
