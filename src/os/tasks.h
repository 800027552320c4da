// SPDX-License-Identifier: MIT
// tasks.h: the threads of this process, and a copy of the process.
#ifndef QY_OS_TASKS_H
#define QY_OS_TASKS_H

#include "os/os.h"

// Calls fn with each thread's id until it says no. Without /proc all numbers are tried, until the time `deadline`
// (qy_os_now_ns). False: not all threads may have been seen.
bool qy_os_each_task(bool (*fn)(int thread, void *arg), void *arg, uint64_t deadline);

typedef enum qy_os_task_state {
    QY_TASK_GONE,     // it has ended
    QY_TASK_DEAF,     // it keeps the signal out
    QY_TASK_LISTENS,  // it does not, or nobody can tell
} qy_os_task_state_t;
// *ret_switches: how often it gave up a processor, 0: not known; ~0: it has one, or wants one.
qy_os_task_state_t qy_os_task_state(int thread, int signal, uint64_t *ret_switches);
// 0, or minus errno.
long qy_os_task_signal(int thread, int signal);

// A copy of the process with the calling thread alone: no handlers of fork run, neither before nor after. No signal
// tells of its end, and only qy_os_copy_ended can wait for it. In the copy: 0. Less than 0: minus errno.
long qy_os_copy(void);
// Has it ended? Waits, if `wait` is set. *ret_ok: it said 0.
bool qy_os_copy_ended(int process, bool wait, bool *ret_ok);
void qy_os_copy_kill(int process);
_Noreturn void qy_os_copy_end(int status);
// In the copy: close all files, but one (-1: none); and signals end it by default. Nobody waits for it at a pipe.
void qy_os_copy_keep_only(int fd);

#endif
