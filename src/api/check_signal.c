// SPDX-License-Identifier: MIT
// check_signal.c: what the program does at SIGSEGV comes after what the checker does; in libquarry-check only.
//
// A virtual machine, a collector or a database has a handler of its own for faults that it makes on purpose. It gets
// all that are not at a guarded block, and finds its handler where it asks for it.
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/compiler.h"
#include "check/guards.h"
#include "os/faults.h"
#include "os/loaded.h"
#include "os/stop.h"

#define EXPORT __attribute__((visibility("default")))

static struct {
    __typeof__(sigaction) *sigaction;
    __typeof__(signal) *signal;
} actions_real;

static void actions_find(void) {
    *(void **)&actions_real.sigaction = qy_os_symbol_next("sigaction");
    *(void **)&actions_real.signal = qy_os_symbol_next("signal");
}

// In the constructor, since a handler of signals may call them, and cannot look them up.
__attribute__((constructor(102))) static void actions_begin(void) { actions_find(); }

static qy_os_action_t action_of(const struct sigaction *a) {
    qy_os_action_t kernel = {.handler = a->sa_sigaction, .flags = (unsigned long)(unsigned)a->sa_flags};
    memcpy(&kernel.mask, &a->sa_mask, sizeof kernel.mask);
    return kernel;
}

static void action_to(const qy_os_action_t *kernel, struct sigaction *ret) {
    memset(ret, 0, sizeof *ret);
    ret->sa_sigaction = kernel->handler;
    ret->sa_flags = (int)kernel->flags;
    memcpy(&ret->sa_mask, &kernel->mask, sizeof kernel->mask);
}

EXPORT int sigaction(int number, const struct sigaction *restrict next, struct sigaction *restrict before) {
    if (QY_UNLIKELY(!actions_real.sigaction)) actions_find();
    // The signal that asks for a scan is the library's. A program that resets all signals would be ended by it.
    if (QY_UNLIKELY(qy_os_stop_keeps(number))) {
        if (before) memset(before, 0, sizeof *before);
        return 0;
    }
    if (number == SIGSEGV) {
        qy_os_action_t wanted, was;
        if (next) wanted = action_of(next);
        if (qy_os_faults_program(next ? &wanted : NULL, &was)) {
            if (before) action_to(&was, before);
            return 0;
        }
    }
    // A handler that blocks all signals may access guarded blocks, too (check_stop.c).
    struct sigaction open;
    if (next && number != SIGSEGV && qy_check_guards_on && sigismember(&next->sa_mask, SIGSEGV) == 1) {
        open = *next;
        sigdelset(&open.sa_mask, SIGSEGV);
        next = &open;
    }
    if (actions_real.sigaction) return actions_real.sigaction(number, next, before);
    errno = ENOSYS;
    return -1;
}

EXPORT __sighandler_t signal(int number, __sighandler_t handler) {
    if (QY_UNLIKELY(!actions_real.signal)) actions_find();
    if (number == SIGSEGV || qy_os_stop_keeps(number)) {
        struct sigaction next = {.sa_flags = SA_RESTART}, before;
        next.sa_handler = handler;
        return sigaction(number, &next, &before) == 0 ? before.sa_handler : SIG_ERR;
    }
    return actions_real.signal ? actions_real.signal(number, handler) : SIG_ERR;
}
