// SPDX-License-Identifier: MIT
// streams.c: see streams.h.
#include "os/streams.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "os/os.h"

// Public functions of glibc that no header declares. Where they are missing (musl), so is the way to this list. libc
// takes its lock in fork only if there is more than one thread by its own count (since 2.32, this variable), and resets
// it in the child only then.
__attribute__((weak)) void list_lock(void) __asm__("_IO_list_lock");
__attribute__((weak)) void list_unlock(void) __asm__("_IO_list_unlock");
__attribute__((weak)) void list_resetlock(void) __asm__("_IO_list_resetlock");
__attribute__((weak)) qy_os_streams_calls_t qy_os_streams_calls(void) {
    return (qy_os_streams_calls_t){list_lock, list_unlock, list_resetlock};
}
extern __attribute__((weak)) char single_threaded __asm__("__libc_single_threaded");
__attribute__((weak)) const char *qy_os_streams_single(void) { return &single_threaded; }

static struct {
    _Atomic uintptr_t token;      // of the thread that holds it by these functions; each knows its own
    unsigned times;               // [by that thread]
    qy_os_streams_calls_t calls;  // by which, set before that
} streams_holder;

static bool is_mine(void) {
    return atomic_load_explicit(&streams_holder.token, memory_order_relaxed) == qy_os_thread_token();
}

void qy_os_streams_hold(void) {
    const volatile char *single = qy_os_streams_single();
    if (single && *single) return;
    qy_os_streams_calls_t calls = qy_os_streams_calls();
    if (!calls.lock || !calls.unlock || !calls.reset) return;
    calls.lock();
    streams_holder.calls = calls;
    streams_holder.times++;
    atomic_store_explicit(&streams_holder.token, qy_os_thread_token(), memory_order_relaxed);
}

void qy_os_streams_let_go(void) {
    if (!is_mine()) return;
    if (--streams_holder.times == 0) atomic_store_explicit(&streams_holder.token, 0, memory_order_relaxed);
    streams_holder.calls.unlock();
}

// It was libc's to reset, and then it is free whatever was held; a fork that a signal handler interrupted by this one
// lets go of nothing.
void qy_os_streams_in_child(void) {
    bool mine = is_mine();
    streams_holder.times = 0;
    atomic_store_explicit(&streams_holder.token, 0, memory_order_relaxed);
    if (mine) streams_holder.calls.reset();
}
