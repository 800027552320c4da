// SPDX-License-Identifier: MIT
// record_process.c: what a program does besides allocating that its trace must know; in libquarry-record only.
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
