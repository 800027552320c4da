// SPDX-License-Identifier: MIT
// spawn.c: bare kernel threads.
//
// A thread made by pthreads would need a stack and thread-local storage from malloc, would be counted
// by the program's tools and would run the program's signal handlers. Ours shares everything with the
// process but has all signals blocked (the mask is inherited, so it is full before the thread's first
// instruction) and no storage of its own: its thread pointer is that of the thread that started it,
// which may end first. Hence no thread-local variable, no errno and no stack protector in what it runs.
//
// The word `alive` is cleared by the kernel itself (CLONE_CHILD_CLEARTID) after the thread's last use
// of its stack; nothing the thread could do at its end would come late enough.
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/compiler.h"
#include "base/num.h"
#include "os/fake.h"
#include "os/os.h"
#include "os/syscall.h"

// Sanitizers and valgrind keep books about every thread and have none for this one.
#if (defined(__x86_64__) || defined(__aarch64__)) && !QY_TSAN && !QY_ASAN
#define BARE_THREADS 1
#else
#define BARE_THREADS 0
#endif

#if BARE_THREADS
// Valgrind's request to itself: a sequence of instructions without effect on a real processor, for
// which its simulated one answers a question. 0x1001 asks how many valgrinds are around us.
static bool under_valgrind(void) {
    const uint64_t request[6] = {0x1001};
#if defined(__x86_64__)
    uint64_t answer = 0;
    __asm__ volatile(
        "rolq $3, %%rdi; rolq $13, %%rdi\n\t"
        "rolq $61, %%rdi; rolq $51, %%rdi\n\t"
        "xchgq %%rbx, %%rbx"
        : "+d"(answer) : "a"(request) : "cc", "memory");
#else
    register uint64_t answer __asm__("x3") = 0;
    register const uint64_t *where __asm__("x4") = request;
    __asm__ volatile(
        "ror x12, x12, #3; ror x12, x12, #13\n\t"
        "ror x12, x12, #51; ror x12, x12, #61\n\t"
        "orr x10, x10, x10"
        : "+r"(answer) : "r"(where) : "cc", "memory");
#endif
    return answer != 0;
}

typedef struct start {
    void (*fn)(void *arg);
    void *arg;
} start_t;

static int run(void *p) {
    start_t *s = p;
    s->fn(s->arg);
    return 0;
}

static bool start_thread(start_t *s, _Atomic uint32_t *alive) {
    const int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID;
    uint64_t all = UINT64_MAX, old;  // kernel signal sets: without libc's exceptions for its own signals
    int saved = errno;
    qy_syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &old, sizeof all);
    int tid = clone(run, s, flags, s, NULL, NULL, alive);  // the stack grows down from the record
    qy_syscall(SYS_rt_sigprocmask, SIG_SETMASK, &old, NULL, sizeof old);
    errno = saved;
    return tid > 0;
}
#endif

bool qy_os_spawn(void (*fn)(void *arg), void *arg, void *stack, size_t bytes, _Atomic uint32_t *alive) {
    atomic_store_explicit(alive, 0, memory_order_relaxed);
    if (qy_os_fake_fails(QY_OS_SPAWN)) return false;
#if BARE_THREADS
    if (under_valgrind()) return false;
    start_t *s = (start_t *)qy_round_down((uintptr_t)stack + bytes - sizeof *s, 16);
    *s = (start_t){fn, arg};
    atomic_store_explicit(alive, 1, memory_order_relaxed);
    if (start_thread(s, alive)) return true;
    atomic_store_explicit(alive, 0, memory_order_relaxed);
#else
    (void)fn, (void)arg, (void)stack, (void)bytes;
#endif
    return false;
}

// The kernel's wake-up at a thread's end is one for futexes shared between processes, so a private
// wait (qy_os_wait) would sleep through it.
void qy_os_join(_Atomic uint32_t *alive) {
    uint32_t value;
    while ((value = atomic_load_explicit(alive, memory_order_acquire)) != 0) qy_syscall(SYS_futex, alive, FUTEX_WAIT, value, NULL);
}
