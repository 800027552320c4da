// SPDX-License-Identifier: MIT
// action.c: see action.h.
#include "os/action.h"

#include <stddef.h>

#include "os/syscall.h"

#if defined(__x86_64__)
#define RESTORER 0x04000000ul  // SA_RESTORER
// As libc has it, byte for byte: that is how debuggers and unwinders know the frame of a signal.
void qy_os_action_return(void);
__asm__(
    ".text\n.hidden qy_os_action_return\n.type qy_os_action_return, @function\n"
    "qy_os_action_return:\n\tmovq $15, %rax\n\tsyscall\n"
    ".size qy_os_action_return, . - qy_os_action_return\n");
#else
#define RESTORER 0ul
#define qy_os_action_return NULL
#endif

bool qy_os_action(int signal, const qy_os_action_t *next, qy_os_action_t *ret_before) {
    qy_os_action_t whole;
    if (next) {
        whole = *next;
        if (RESTORER && !(whole.flags & RESTORER)) {
            whole.flags |= RESTORER;
            whole.restorer = qy_os_action_return;
        }
        next = &whole;
    }
    return qy_syscall(SYS_rt_sigaction, signal, next, ret_before, sizeof whole.mask) == 0;
}
