// SPDX-License-Identifier: MIT
// stop.h: all other threads of the process stand still for a moment, by a signal that is kept for it.
//
// No privilege is needed: a thread may signal the threads of its own process, also where nobody may trace it. The
// handler notes where the thread's stack ends and where its registers were saved, and sleeps until it is let go. A
// thread that keeps the signal out by a system call of its own does not stop: it is counted as lost.
//
// The same signal, sent by another process or a timer, is a request: then the handler calls the library, on whichever
// thread the kernel chose.
//
// Nothing here uses thread-local storage, errno or malloc. Threads: one stops the others at a time.
#ifndef QY_OS_STOP_H
#define QY_OS_STOP_H

#include "os/os.h"

// SIGRTMAX - 1 of the kernel. qy_os_stop_keeps says what else may not use it.
#define QY_STOP_SIGNAL 63

#define QY_HERE_REGISTERS 12

// Where a thread stands: what of it can hold pointers.
typedef struct qy_os_standing {
    int thread;              // its id
    uintptr_t sp;            // its stack is used from here on
    uintptr_t registers[2];  // begin and end of the words that the registers were saved to; likewise
    uintptr_t vectors[2];    // ... those of numbers and vectors
} qy_os_standing_t;

typedef struct qy_os_stopped {
    unsigned asked, lost, own;  // threads, those that did not stop, those of the library that are not meant to
    bool unknown;               // the threads of the process could not be listed in time
} qy_os_stopped_t;

// A request came: called by the signal's handler. `timer`: from this process's timer, else from elsewhere.
typedef void qy_os_stop_request_t(bool timer, const qy_os_standing_t *here);
// From here on the signal is ours. False: the kernel refuses.
bool qy_os_stop_install(qy_os_stop_request_t *request);
// Is it installed? Then this signal may not be blocked, waited for, or handled by the program.
bool qy_os_stop_keeps(int signal);

// Stop the others; those that have not stopped after `patience_ns` are lost. False: another thread is at it, or it was
// not installed. The caller's signals are kept out until qy_os_stop_end.
bool qy_os_stop_all(uint64_t patience_ns, qy_os_stopped_t *ret);
// Calls fn for each thread that stands, meanwhile.
void qy_os_stop_each(void (*fn)(const qy_os_standing_t *standing, void *arg), void *arg);
// Let them go on.
void qy_os_stop_end(void);
// In a fork's child, which has none of those threads.
void qy_os_stop_in_child(void);

// Where the caller stands: its frame, and the registers that functions preserve, saved to `saved`.
void qy_os_stand_here(uintptr_t saved[QY_HERE_REGISTERS], qy_os_standing_t *ret);

// A request after each `seconds` from now on, in this process; 0: none any more. False: the kernel refuses.
bool qy_os_stop_timer(unsigned seconds);

#endif
