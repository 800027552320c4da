// SPDX-License-Identifier: MIT
// thread.c: who am I, and waiting.
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "os/os.h"
#include "os/syscall.h"

int qy_os_thread_id(void) { return (int)qy_syscall(SYS_gettid); }
int qy_os_process_id(void) { return (int)qy_syscall(SYS_getpid); }

// libc makes the clock's number of what it noted when the thread began or forked. The kernel's rule for such numbers is
// ~id << 3 | kind.
int qy_os_thread_id_known(void) {
    clockid_t clock;
#if defined(__GLIBC__) && defined(__x86_64__)
    const pthread_t me = qy_os_thread_token();  // as pthread_self says, which each start would look for
#else
    const pthread_t me = pthread_self();
#endif
    return pthread_getcpuclockid(me, &clock) == 0 ? ~((int)clock >> 3) : 0;
}

static _Atomic int first;  // the process's number when that was asked, 0: not yet
// Of the first thread, if it came to the constructor: its record lasts as long as the process, and a copy of it in each
// child. No other thread has this token. 0: unknown
static _Atomic uintptr_t first_token;

bool qy_os_is_first_thread(void) {
    if (atomic_load_explicit(&first_token, memory_order_relaxed) == qy_os_thread_token()) return true;
    int me = qy_os_thread_id_known();
    if (!first) first = qy_os_process_id();
    return me ? me == first : qy_os_thread_id() == first;
}

void qy_os_first_thread_begin(void) {
    first = qy_os_process_id();
    if (qy_os_thread_id() == first)
        atomic_store_explicit(&first_token, qy_os_thread_token(), memory_order_relaxed);
}

void qy_os_first_thread_in_child(void) { first = qy_os_thread_id_known(); }

void qy_os_first_thread_unknown(void) { first = 0; }

void qy_os_wait(_Atomic uint32_t *word, uint32_t expect, uint64_t timeout_ns) {
    struct timespec timeout = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};
    qy_syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expect, timeout_ns ? &timeout : NULL);
}

void qy_os_wake(_Atomic uint32_t *word, unsigned count) {
    qy_syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count > INT32_MAX ? INT32_MAX : (int)count);
}
