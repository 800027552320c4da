// SPDX-License-Identifier: MIT
// stop.c: see stop.h.
//
// The threads are listed and signalled again until a list has no new one: a thread that was not stopped yet may have
// made another meanwhile. A thread that keeps the signal out may do so for a moment: libc lets no signal in while it
// makes a thread. So it is lost only if it sleeps, and goes on to sleep.
//
// Each handler takes a place in a table, fills it, and only then counts itself as stopped.
#include "os/stop.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

#include "base/compiler.h"
#include "base/num.h"
#include "os/action.h"
#include "os/fake.h"
#include "os/syscall.h"
#include "os/tasks.h"

#define THREADS_MOST 32768u
#define ROUND_NS UINT64_C(2000000)  // so long threads are waited for before the kernel is asked what they do
#define QUIET_LOOKS 25u             // a deaf thread that slept in so many of them is lost
#define RED_ZONE 128u               // below sp, and in use by functions that call none

typedef struct asked {
    int thread;
    bool done;          // gone, lost, or seen among those that stand
    unsigned quiet;     // looks in which it kept the signal out and slept
    uint64_t switches;  // at the last one
} asked_t;

static struct {
    qy_os_stop_request_t *request;
    bool installed;
    _Atomic uint32_t busy;     // the thread that stops the others, 0: none
    _Atomic uint32_t active;   // they are to stand: the number of this stop, else 0. Handlers sleep on it
    _Atomic uint64_t places;   // taken in `standing`, and of these filled; each with the number of the stop in its
    _Atomic uint64_t stopped;  // upper half, so that a handler that comes late changes nothing
    _Atomic uint32_t bell;     // changes when `stopped` has
    uint32_t number;           // of stops so far
    qy_os_standing_t *standing;
    asked_t *asked;
    unsigned asked_count;
    uint64_t mask;  // of the thread that stops the others
    int timer;
    bool has_timer;
} stopping;

// ---- a thread that stops ---------------------------------------------------------------------------

#if defined(__x86_64__)
#define FPU_BYTES 512u
#define FPU_MAGIC 0x46505853u
static void note_context(const ucontext_t *context, qy_os_standing_t *s) {
    const greg_t *registers = context->uc_mcontext.gregs;
    const char *vectors = (const char *)context->uc_mcontext.fpregs;
    s->sp = (uintptr_t)registers[REG_RSP] - RED_ZONE;
    s->registers[0] = (uintptr_t)registers;
    s->registers[1] = (uintptr_t)(registers + NGREG);
    if (!vectors) return;
    uint32_t magic, extended = 0;
    memcpy(&magic, vectors + 464, sizeof magic);
    if (magic == FPU_MAGIC) memcpy(&extended, vectors + 468, sizeof extended);
    s->vectors[0] = (uintptr_t)vectors;
    s->vectors[1] = (uintptr_t)vectors + qy_max(qy_min(extended, 16384), FPU_BYTES);
}
#elif defined(__aarch64__)
static void note_context(const ucontext_t *context, qy_os_standing_t *s) {
    s->sp = context->uc_mcontext.sp;
    s->registers[0] = (uintptr_t)context->uc_mcontext.regs;
    s->registers[1] = (uintptr_t)(context->uc_mcontext.regs + 31);
    s->vectors[0] = (uintptr_t)context->uc_mcontext.__reserved;
    s->vectors[1] = (uintptr_t)context->uc_mcontext.__reserved + sizeof context->uc_mcontext.__reserved;
}
#else
static void note_context(const ucontext_t *context, qy_os_standing_t *s) { s->sp = (uintptr_t)context; }
#endif

// One more in a count of this stop. False: the stop is over.
static bool count_up(_Atomic uint64_t *count, uint32_t number, uint32_t *ret_before) {
    uint64_t before = atomic_load(count);
    while (before >> 32 == number) {
        *ret_before = (uint32_t)before;
        if (atomic_compare_exchange_weak(count, &before, before + 1)) return true;
    }
    return false;
}

static void stand(const ucontext_t *context, uint32_t number) {
    uint32_t place, before;
    if (!count_up(&stopping.places, number, &place)) return;
    if (place < THREADS_MOST) {
        qy_os_standing_t *s = &stopping.standing[place];
        *s = (qy_os_standing_t){.thread = qy_os_thread_id()};
        note_context(context, s);
    }
    if (!count_up(&stopping.stopped, number, &before)) return;
    atomic_fetch_add(&stopping.bell, 1);
    qy_os_wake(&stopping.bell, 1);
    for (bool over = false; !over; over = atomic_load(&stopping.active) != number)
        qy_os_wait(&stopping.active, number, 0);
}

static void on_signal(int signal, siginfo_t *info, void *context) {
    (void)signal;
    bool own = info->si_code == SI_TKILL && info->si_pid == qy_os_process_id();
    if (own) {  // one that comes late, when the others go on again, means nothing
        uint32_t stop = atomic_load(&stopping.active);
        if (stop && atomic_load(&stopping.busy) != (uint32_t)qy_os_thread_id()) stand(context, stop);
        return;
    }
    qy_os_standing_t here = {.thread = qy_os_thread_id()};
    note_context(context, &here);
    stopping.request(info->si_code == SI_TIMER, &here);
}

// ---- installation ------------------------------------------------------------------------------------

static void *stop_table(size_t bytes) {
    size_t page = qy_os_page_size();
    return qy_os_map(qy_round_up(bytes, page), page, NULL);
}

// Not through libc, whose functions of that name refuse the signal (qy_os_stop_keeps).
static bool handle_signal(void) {
    const qy_os_action_t action = {
        .handler = on_signal, .flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK, .mask = ~UINT64_C(0)};
    return qy_os_action(QY_STOP_SIGNAL, &action, NULL);
}

bool qy_os_stop_install(qy_os_stop_request_t *request) {
    const uint64_t only = UINT64_C(1) << (QY_STOP_SIGNAL - 1);
    if (!stopping.standing) stopping.standing = stop_table(THREADS_MOST * sizeof *stopping.standing);
    if (!stopping.asked) stopping.asked = stop_table(THREADS_MOST * sizeof *stopping.asked);
    if (!stopping.standing || !stopping.asked) return false;
    stopping.request = request;
    if (!handle_signal()) return false;
    qy_syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &only, NULL, sizeof only);
    stopping.installed = true;
    return true;
}

bool qy_os_stop_keeps(int signal) { return signal == QY_STOP_SIGNAL && stopping.installed; }

void qy_os_stop_in_child(void) {
    atomic_store(&stopping.active, 0);
    atomic_store(&stopping.busy, 0);
    stopping.has_timer = false;  // the kernel does not copy timers
}

// ---- stopping the others -----------------------------------------------------------------------------

typedef struct round {
    qy_os_stopped_t *result;
    unsigned at;
    bool is_new;
    int me;
} round_t;

static bool is_asked(unsigned at, int thread) {
    if (at < stopping.asked_count && stopping.asked[at].thread == thread) return true;
    for (unsigned i = 0; i < stopping.asked_count; i++)
        if (stopping.asked[i].thread == thread) return true;
    return false;
}

static bool ask(int thread, void *arg) {
    round_t *r = arg;
    if (thread == r->me) return true;
    if (is_asked(r->at++, thread)) return true;
    if (stopping.asked_count == THREADS_MOST) {
        r->result->unknown = true;
        return false;
    }
    asked_t *a = &stopping.asked[stopping.asked_count++];
    *a = (asked_t){.thread = thread};
    r->is_new = true;
    if (qy_os_is_bare_thread(thread)) {
        a->done = true;
        r->result->own++;
        return true;
    }
    r->result->asked++;
    long failed = qy_os_task_signal(thread, QY_STOP_SIGNAL);
    if (failed == -ESRCH) {
        a->done = true;
        r->result->asked--;
    } else if (failed) {
        a->done = true;
        r->result->lost++;
    }
    return true;
}

static uint32_t standing_count(void) { return (uint32_t)atomic_load(&stopping.stopped); }
static bool all_stand(const qy_os_stopped_t *r) { return standing_count() + r->lost >= r->asked; }

static bool stands(int thread) {
    uint32_t n = (uint32_t)qy_min(standing_count(), THREADS_MOST);
    for (uint32_t i = 0; i < n; i++)
        if (stopping.standing[i].thread == thread) return true;
    return false;
}

// What the kernel says of those that have not stopped; `late`: they are given up.
static void look_after(qy_os_stopped_t *r, bool late) {
    for (unsigned i = 0; i < stopping.asked_count; i++) {
        asked_t *a = &stopping.asked[i];
        if (a->done) continue;
        if (stands(a->thread)) {
            a->done = true;
            continue;
        }
        uint64_t switches;
        qy_os_task_state_t state = qy_os_task_state(a->thread, QY_STOP_SIGNAL, &switches);
        bool sleeps = state == QY_TASK_DEAF && switches != UINT64_MAX && switches == a->switches;
        a->quiet = sleeps ? a->quiet + 1 : 0;
        a->switches = switches;
        if (state != QY_TASK_GONE && a->quiet < QUIET_LOOKS && !late) continue;
        a->done = true;
        if (state == QY_TASK_GONE) r->asked--;
        else r->lost++;
    }
}

static void wait_for_them(qy_os_stopped_t *r, uint64_t deadline) {
    for (;;) {
        uint32_t bell = atomic_load(&stopping.bell);
        if (all_stand(r)) return;
        uint64_t before = qy_os_now_ns();
        qy_os_wait(&stopping.bell, bell, ROUND_NS);
        bool late = qy_os_now_ns() >= deadline;
        if (late || qy_os_now_ns() - before >= ROUND_NS) look_after(r, late);
    }
}

bool qy_os_stop_all(uint64_t patience_ns, qy_os_stopped_t *ret) {
    uint32_t nobody = 0, me = (uint32_t)qy_os_thread_id();
    *ret = (qy_os_stopped_t){0};
    if (!stopping.installed || !atomic_compare_exchange_strong(&stopping.busy, &nobody, me)) return false;
    stopping.mask = qy_os_signals_keep_out();
    stopping.asked_count = 0;
    handle_signal();  // a program may have set it by a system call of its own, and would end by the signal
    uint32_t number = ++stopping.number ? stopping.number : ++stopping.number;
    atomic_store(&stopping.places, (uint64_t)number << 32);
    atomic_store(&stopping.stopped, (uint64_t)number << 32);
    atomic_store(&stopping.active, number);
    uint64_t deadline = qy_os_now_ns() + patience_ns;
    round_t r = {.result = ret, .is_new = true, .me = (int)me};
    while (r.is_new) {
        r.is_new = false;
        r.at = 0;
        if (!qy_os_each_task(ask, &r, deadline)) ret->unknown = true;
        wait_for_them(ret, deadline);
        if (ret->unknown) break;
    }
    return true;
}

void qy_os_stop_each(void (*fn)(const qy_os_standing_t *standing, void *arg), void *arg) {
    uint32_t n = (uint32_t)qy_min(standing_count(), THREADS_MOST);
    for (uint32_t i = 0; i < n; i++) fn(&stopping.standing[i], arg);
}

void qy_os_stop_end(void) {
    atomic_store(&stopping.active, 0);
    qy_os_wake(&stopping.active, UINT32_MAX);
    uint64_t mask = stopping.mask;
    atomic_store(&stopping.busy, 0);
    qy_os_signals_let_in(mask);
}

// ---- here, and every so often ------------------------------------------------------------------------

QY_NOINLINE void qy_os_stand_here(uintptr_t saved[QY_HERE_REGISTERS], qy_os_standing_t *ret) {
    memset(saved, 0, QY_HERE_REGISTERS * sizeof *saved);
#if defined(__x86_64__)
    __asm__ volatile(
        "movq %%rbx, 0(%0)\n\tmovq %%rbp, 8(%0)\n\tmovq %%r12, 16(%0)\n\t"
        "movq %%r13, 24(%0)\n\tmovq %%r14, 32(%0)\n\tmovq %%r15, 40(%0)"
        :
        : "r"(saved)
        : "memory");
#elif defined(__aarch64__)
    __asm__ volatile(
        "stp x19, x20, [%0]\n\tstp x21, x22, [%0, 16]\n\tstp x23, x24, [%0, 32]\n\t"
        "stp x25, x26, [%0, 48]\n\tstp x27, x28, [%0, 64]\n\tstr x29, [%0, 80]"
        :
        : "r"(saved)
        : "memory");
#endif
    *ret = (qy_os_standing_t){.thread = qy_os_thread_id(), .sp = (uintptr_t)__builtin_frame_address(0)};
    ret->registers[0] = (uintptr_t)saved;
    ret->registers[1] = (uintptr_t)(saved + QY_HERE_REGISTERS);
}

bool qy_os_stop_timer(unsigned seconds) {
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = QY_STOP_SIGNAL};
    struct itimerspec every = {{seconds, 0}, {seconds, 0}};
    if (stopping.has_timer) qy_syscall(SYS_timer_delete, stopping.timer);
    stopping.has_timer = false;
    if (!seconds) return true;
    if (qy_syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &stopping.timer) != 0) return false;
    stopping.has_timer = qy_syscall(SYS_timer_settime, stopping.timer, 0, &every, NULL) == 0;
    return stopping.has_timer;
}
