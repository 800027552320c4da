// SPDX-License-Identifier: MIT
// spawn.c: bare kernel threads.
//
// A thread made by pthreads would need a stack and thread-local storage from malloc, would be counted
// by the program's tools and would run the program's signal handlers. Ours shares everything with the
// process but has all signals blocked (the mask is inherited, so it is full before the thread's first
// instruction) and no thread-local storage, only a decoy: its thread pointer points into a small area
// of its own. Else it would be that of the thread that started it, which may end first, and two
// threads would be one to qy_os_thread_token.
//
// The word `alive` is cleared by the kernel itself (CLONE_CHILD_CLEARTID) after the thread's last use
// of its stack; nothing the thread could do at its end would come late enough.
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>

#include "base/compiler.h"
#include "base/num.h"
#include "os/fake.h"
#include "os/giveback.h"
#include "os/os.h"
#include "os/process.h"
#include "os/syscall.h"

// Sanitizers and valgrind keep books about every thread and have none for this one.
#if (defined(__x86_64__) || defined(__aarch64__)) && !QY_TSAN && !QY_ASAN
#define BARE_THREADS 1
#else
#define BARE_THREADS 0
#endif

// Kernel signal sets: without libc's exceptions for its own signals.
uint64_t qy_os_signals_keep_out(void) {
    uint64_t all = UINT64_MAX, before = 0;
    qy_syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all);
    return before;
}
void qy_os_signals_let_in(uint64_t before) {
    qy_syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
}

uint64_t qy_os_signals_kept_out(void) {
    uint64_t now = 0;
    qy_syscall(SYS_rt_sigprocmask, SIG_SETMASK, NULL, &now, sizeof now);
    return now;
}

// Those that were started and may be alive: there is one in a process, or a second one while the first ends.
#define BARE_THREADS_KNOWN 4u
#define LOOK_NS UINT64_C(50000)
static _Atomic int bare_threads[BARE_THREADS_KNOWN];

bool qy_os_is_bare_thread(int thread) {
    for (unsigned i = 0; i < BARE_THREADS_KNOWN; i++)
        if (atomic_load_explicit(&bare_threads[i], memory_order_relaxed) == thread) return true;
    return false;
}

void qy_os_bare_threads_gone(uint64_t timeout_ns) {
    uint64_t deadline = qy_os_now_ns() + timeout_ns;
    for (unsigned i = 0; i < BARE_THREADS_KNOWN; i++) {
        int thread = atomic_load_explicit(&bare_threads[i], memory_order_relaxed);
        while (thread && qy_os_thread_lives(thread) && qy_os_now_ns() < deadline) {
            _Atomic uint32_t nobody_wakes = 0;
            qy_os_wait(&nobody_wakes, 0, LOOK_NS);
        }
        if (thread && !qy_os_thread_lives(thread)) atomic_compare_exchange_strong(&bare_threads[i], &thread, 0);
    }
}

#if BARE_THREADS
static void note_bare_thread(int thread) {
    static _Atomic unsigned next;
    unsigned at = atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) % BARE_THREADS_KNOWN;
    atomic_store_explicit(&bare_threads[at], thread, memory_order_relaxed);
}

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
        : "+d"(answer)
        : "a"(request)
        : "cc", "memory");
#else
    register uint64_t answer __asm__("x3") = 0;
    register const uint64_t *where __asm__("x4") = request;
    __asm__ volatile(
        "ror x12, x12, #3; ror x12, x12, #13\n\t"
        "ror x12, x12, #51; ror x12, x12, #61\n\t"
        "orr x10, x10, x10"
        : "+r"(answer)
        : "r"(where)
        : "cc", "memory");
#endif
    return answer != 0;
}

// What stands at the top of the stack. Thread-local variables lie below the thread pointer on x86-64
// and above it on aarch64: what libc writes by mistake (errno) ends in the padding.
typedef struct start {
    void (*fn)(void *arg);
    void *arg;
    char below[1024];
    uintptr_t tls[16];
    char above[1024];
} start_t;

// On x86-64 code finds a few things right at the thread pointer: its own address (words 0 and 2) and
// libc's secrets for stack protection and stored jumps (5 and 6), of which copies will do.
static void *decoy(start_t *s) {
    uintptr_t *tls = s->tls;
#if defined(__x86_64__)
    const uintptr_t *real = (const uintptr_t *)qy_os_thread_token();
    tls[0] = tls[2] = (uintptr_t)tls;
    tls[5] = real[5];
    tls[6] = real[6];
#endif
    return tls;
}

// What a thread inherits and is its starter's alone. A thread that waits in the background shall not be of real time,
// nor share the one processor that the starter was bound to. Low, but not lowest: who waits for a lock that it holds
// waits as long as it gets no processor.
#define NICE 10
static void inherits_nothing(int thread) {
    qy_os_use_all_cpus(thread);
    long policy = qy_syscall(SYS_sched_getscheduler, thread);
    struct sched_param none = {0};
    if (policy != SCHED_IDLE && policy != SCHED_BATCH) qy_syscall(SYS_sched_setscheduler, thread, SCHED_BATCH, &none);
    long nice = 20 - (long)qy_syscall(SYS_getpriority, PRIO_PROCESS, thread);  // the kernel's answer is 1 to 40
    if (nice >= -20 && nice < NICE) qy_syscall(SYS_setpriority, PRIO_PROCESS, thread, NICE);
}

static int spawn_run(void *p) {
    start_t *s = p;
    s->fn(s->arg);
    return 0;
}

static bool start_thread(start_t *s, _Atomic uint32_t *alive) {
    const int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS |
                      CLONE_CHILD_CLEARTID;
    int saved = errno;
    uint64_t before = qy_os_signals_keep_out();
    int tid = clone(spawn_run, s, flags, s, NULL, decoy(s), alive);  // the stack grows down from the record
    // by its starter, since it may not run for long: it has the starter's processor
    if (tid > 0) inherits_nothing(tid);
    if (tid > 0) note_bare_thread(tid);
    qy_os_signals_let_in(before);
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
    *s = (start_t){.fn = fn, .arg = arg};
    qy_os_bare_thread_on(stack, bytes);
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
bool qy_os_join(_Atomic uint32_t *alive, uint64_t timeout_ns) {
    uint64_t deadline = timeout_ns ? qy_os_now_ns() + timeout_ns : 0;
    uint32_t value;
    while ((value = atomic_load_explicit(alive, memory_order_acquire)) != 0) {
        uint64_t now = deadline ? qy_os_now_ns() : 0;
        if (deadline && now >= deadline) return false;
        struct timespec rest = {(time_t)((deadline - now) / 1000000000u), (long)((deadline - now) % 1000000000u)};
        qy_syscall(SYS_futex, alive, FUTEX_WAIT, value, deadline ? &rest : NULL);
    }
    return true;
}
