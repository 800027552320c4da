// SPDX-License-Identifier: MIT
// faults.c: see faults.h.
#include "os/faults.h"

#include <stdatomic.h>
#include <stddef.h>
#include <ucontext.h>

#include "base/compiler.h"
#include "os/os.h"
#include "os/syscall.h"

// The program's action is written under `lock`, with all signals kept out, and read without: a number that is odd while
// it is written, and another one afterwards.
static struct {
    qy_os_on_fault_t *_Atomic ask;
    _Atomic uint32_t lock, turn;
    qy_os_action_t program;
} faults;

static void faults_lock(void) {
    for (uint32_t none = 0; !atomic_compare_exchange_strong(&faults.lock, &none, 1); none = 0)
        qy_os_wait(&faults.lock, 1, UINT64_C(1000000));
}
static void faults_unlock(void) {
    atomic_store(&faults.lock, 0);
    qy_os_wake(&faults.lock, 1);
}

static void put_program(const qy_os_action_t *next) {
    atomic_fetch_add(&faults.turn, 1);
    faults.program = *next;
    atomic_fetch_add(&faults.turn, 1);
}

static qy_os_action_t program_now(void) {
    for (;;) {
        uint32_t turn = atomic_load(&faults.turn);
        qy_os_action_t action = faults.program;
        atomic_thread_fence(memory_order_acquire);
        if (!(turn & 1) && atomic_load(&faults.turn) == turn) return action;
    }
}

static qy_os_fault_t fault_of(const siginfo_t *info, const ucontext_t *context) {
    qy_os_fault_t f = {.address = (uintptr_t)info->si_addr};
#if defined(__x86_64__)
    const greg_t *r = context->uc_mcontext.gregs;
    f.pc = (uintptr_t)r[REG_RIP];
    f.sp = (uintptr_t)r[REG_RSP];
    f.fp = (uintptr_t)r[REG_RBP];
    f.is_write = (r[REG_ERR] & 2) != 0;
    f.is_known = true;
#elif defined(__aarch64__)
    f.pc = context->uc_mcontext.pc;
    f.sp = context->uc_mcontext.sp;
    f.fp = context->uc_mcontext.regs[29];
#else
    (void)context;
#endif
    return f;
}

// No page gets the right to be run. Such a jump would fail for ever, if it were tried again.
static bool is_jump(const qy_os_fault_t *f, const ucontext_t *context) {
#if defined(__x86_64__)
    return f->address == f->pc || (context->uc_mcontext.gregs[REG_ERR] & 16);
#else
    (void)context;
    return f->address == f->pc;
#endif
}

// The default action, at the same instruction again, or by a signal like this one where nothing will fail again.
static void end_by(int signal, const siginfo_t *info) {
    qy_os_action_t none = {.handler = (void (*)(int, siginfo_t *, void *))(void *)SIG_DFL};
    qy_os_action(signal, &none, NULL);
    if (info->si_code <= 0) qy_syscall(SYS_tgkill, qy_os_process_id(), qy_os_thread_id(), signal);
}

static bool is_named(const qy_os_action_t *a, void (*name)(int)) { return (void *)a->handler == (void *)name; }

static void pass_on(int signal, siginfo_t *info, void *context) {
    qy_os_action_t a = program_now();
    if (is_named(&a, SIG_IGN) && info->si_code <= 0) return;
    if (is_named(&a, SIG_DFL) || is_named(&a, SIG_IGN)) {
        end_by(signal, info);
        return;
    }
    if (a.flags & SA_RESETHAND) {
        qy_os_action_t none = {.handler = (void (*)(int, siginfo_t *, void *))(void *)SIG_DFL};
        put_program(&none);
    }
    uint64_t self = UINT64_C(1) << (signal - 1), mask = a.mask | (a.flags & SA_NODEFER ? 0 : self);
    if (a.flags & SA_NODEFER) qy_syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &self, NULL, sizeof self);
    qy_syscall(SYS_rt_sigprocmask, SIG_BLOCK, &mask, NULL, sizeof mask);
    a.handler(signal, info, context);  // the mask of before comes back with the context
}

static void on_fault(int signal, siginfo_t *info, void *context) {
    int saved = errno;
    qy_os_on_fault_t *ask = atomic_load(&faults.ask);
    if (ask && info->si_code > 0) {
        qy_os_fault_t f = fault_of(info, context);
        bool again = ask(&f) && !is_jump(&f, context);
        errno = saved;
        if (again) return;
    }
    pass_on(signal, info, context);
}

bool qy_os_faults_begin(qy_os_on_fault_t *fn) {
    qy_os_action_t ours = {.handler = on_fault, .flags = SA_SIGINFO | SA_ONSTACK}, before;
    uint64_t mask = qy_os_signals_keep_out();
    faults_lock();
    bool done = atomic_load(&faults.ask) != NULL;
    if (!done && qy_os_action(SIGSEGV, NULL, &before)) {
        put_program(&before);
        atomic_store(&faults.ask, fn);
        done = qy_os_action(SIGSEGV, &ours, NULL);
        if (!done) atomic_store(&faults.ask, NULL);
    }
    faults_unlock();
    qy_os_signals_let_in(mask);
    return done;
}

bool qy_os_faults_program(const qy_os_action_t *next, qy_os_action_t *ret_before) {
    uint64_t mask = qy_os_signals_keep_out();
    faults_lock();
    bool caught = atomic_load(&faults.ask) != NULL;
    if (caught && ret_before) *ret_before = faults.program;
    if (caught && next) put_program(next);
    faults_unlock();
    qy_os_signals_let_in(mask);
    return caught;
}
