// SPDX-License-Identifier: MIT
// threads.h: what a thread has under check: a small number, by which a record names it, and whether it is within us.
#ifndef QY_CHECK_THREADS_H
#define QY_CHECK_THREADS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

typedef struct qy_check_thread {
    uint16_t number;  // 0: not yet. 65,535 stands for all from that on
    bool looking;     // at the modules (stacks/modules.h)
    bool reporting;
    bool blocks_faults;       // it believes that it blocks SIGSEGV (api/check_stop.c)
    uint32_t frees, waiting;  // since it last looked how much waits, without an account (quarantine.c)
} qy_check_thread_t;
extern __thread qy_check_thread_t qy_check_thread;

uint16_t qy_check_thread_begin(void);
QY_INLINE uint16_t qy_check_thread_number(void) {
    uint16_t n = qy_check_thread.number;
    return QY_LIKELY(n != 0) ? n : qy_check_thread_begin();
}
// So many were given, at least; those of children and of ended threads with them.
uint32_t qy_check_threads_numbered(void);
// The kernel's number of the thread that had this one; 0: not known.
uint32_t qy_check_thread_id(uint16_t number);
// In the child of a fork: the calling thread has another number of the kernel's.
void qy_check_threads_in_child(void);

#endif
