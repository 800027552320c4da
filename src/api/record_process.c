// SPDX-License-Identifier: MIT
// record_process.c: what a program does besides allocating that its trace must know; in libquarry-record only.
#include <errno.h>
#include <sys/types.h>

#include "api/record.h"
#include "trace/usage.h"

int dlclose(void *handle);
pid_t fork(void);
_Noreturn void exit_now(int status) __asm__("_exit");
_Noreturn void exit_now_c99(int status) __asm__("_Exit");
_Noreturn void quick_exit(int status);
// What atexit, at_quick_exit and pthread_atfork call, in whichever library.
int cxa_atexit(void (*fn)(void *arg), void *arg, void *library) __asm__("__cxa_atexit");
int cxa_at_quick_exit(void (*fn)(void *unused), void *library) __asm__("__cxa_at_quick_exit");
int on_exit(void (*fn)(int status, void *arg), void *arg);
int register_atfork(void (*before)(void), void (*parent)(void), void (*child)(void), void *library) __asm__(
    "__register_atfork");

// Found before there is a second thread, or at the first call where that is earlier.
static struct {
    __typeof__(dlclose) *dlclose;
    __typeof__(fork) *fork;
    __typeof__(exit_now) *exit_now;
    __typeof__(quick_exit) *quick_exit;
    __typeof__(cxa_atexit) *cxa_atexit;
    __typeof__(cxa_at_quick_exit) *cxa_at_quick_exit;
    __typeof__(on_exit) *on_exit;
    __typeof__(register_atfork) *register_atfork;
} process_real;

#define FIND(function, name) *(void **)&process_real.function = qy_real_symbol(name)

static _Atomic bool process_found;

static void process_find_real(void) {
    FIND(dlclose, "dlclose");
    FIND(fork, "fork");
    FIND(exit_now, "_exit");
    FIND(quick_exit, "quick_exit");
    FIND(cxa_atexit, "__cxa_atexit");
    FIND(cxa_at_quick_exit, "__cxa_at_quick_exit");
    FIND(on_exit, "on_exit");
    FIND(register_atfork, "__register_atfork");
    atomic_store(&process_found, true);
}

static void process_start(void) {
    if (qy_real.malloc || qy_real_find()) qy_record_writer();
}

// The end, and children, are seen to by handlers that are registered then.
__attribute__((constructor)) static void process_begin(void) {
    process_find_real();
    // Mallocs that are preloaded have their constructors at this place, and some do otherwise before them.
    if (qy_usage_is_early()) atomic_fetch_or(&qy_record.traits, QY_TRAIT_EARLY);
    process_start();
}

QY_EXPORT int dlclose(void *handle) {
    if (QY_UNLIKELY(!atomic_load(&process_found))) process_find_real();
    qy_record_closing();
    int r = process_real.dlclose ? process_real.dlclose(handle) : -1;
    qy_record_closed();
    return r;
}

// The handlers of fork don't know the child's number.
QY_EXPORT pid_t fork(void) {
    if (QY_UNLIKELY(!atomic_load(&process_found))) process_find_real();
    pid_t child = process_real.fork ? process_real.fork() : -1;
    qy_writer_t *w = qy_record_mine;
    if (child > 0 && qy_record_ready(w)) {
        if (qy_writer_begin(w))
            qy_write_numbers(w, QY_OP_PROCESS, QY_PROCESS_FORK, qy_os_ticks(), 1, (uint64_t)child, 0);
        qy_writer_end(w);
    }
    return child;
}

// ---- ends without the handlers of exit -----------------------------------------------------------------------------

// In the child of vfork, too: nothing is changed there, since it is another process than the recorded one.
QY_EXPORT void exit_now(int status) {
    if (QY_UNLIKELY(!atomic_load(&process_found))) process_find_real();
    qy_record_end(status, "_exit");
    if (process_real.exit_now) process_real.exit_now(status);
    qy_os_abort();
}

QY_EXPORT void exit_now_c99(int status) { exit_now(status); }

QY_EXPORT void quick_exit(int status) {
    if (QY_UNLIKELY(!atomic_load(&process_found))) process_find_real();
    qy_record_quick_status(status);
    if (process_real.quick_exit) process_real.quick_exit(status);
    qy_os_abort();
}

// ---- handlers that the program registers ---------------------------------------------------------------------------

// The C library allocates for handlers with a lock taken, and a recording that begins takes it for handlers of its own.
// So it doesn't begin within such a call, but before.
static void be_ready(void) {
    if (atomic_load(&qy_record.state) == QY_RECORD_COLD) process_start();
    if (QY_UNLIKELY(!atomic_load(&process_found))) process_find_real();
}

QY_EXPORT int cxa_atexit(void (*fn)(void *arg), void *arg, void *library) {
    be_ready();
    return process_real.cxa_atexit ? process_real.cxa_atexit(fn, arg, library) : -1;
}

QY_EXPORT int cxa_at_quick_exit(void (*fn)(void *unused), void *library) {
    be_ready();
    return process_real.cxa_at_quick_exit ? process_real.cxa_at_quick_exit(fn, library) : -1;
}

QY_EXPORT int on_exit(void (*fn)(int status, void *arg), void *arg) {
    be_ready();
    return process_real.on_exit ? process_real.on_exit(fn, arg) : -1;
}

QY_EXPORT int register_atfork(void (*before)(void), void (*parent)(void), void (*child)(void), void *library) {
    be_ready();
    return process_real.register_atfork ? process_real.register_atfork(before, parent, child, library) : ENOMEM;
}
