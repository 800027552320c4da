// SPDX-License-Identifier: MIT
// action.h: what happens at a signal, asked of the kernel itself: libc's functions of that name may be interposed.
#ifndef QY_OS_ACTION_H
#define QY_OS_ACTION_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

// As the kernel has it.
typedef struct qy_os_action {
    void (*handler)(int, siginfo_t *, void *);  // or SIG_DFL, SIG_IGN
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
} qy_os_action_t;

// `next` NULL: it stays. False: there is no such signal, or it is denied. Safe in signal handlers.
bool qy_os_action(int signal, const qy_os_action_t *next, qy_os_action_t *ret_before);

#endif
