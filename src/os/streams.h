// SPDX-License-Identifier: MIT
// streams.h: libc's list of open streams, whose lock comes before all of ours in a fork.
//
// fork takes the lock of this list after it has called the fork handlers. Its holder (fflush(NULL), fopen, fclose)
// waits for the locks of single streams, and who has one of these may allocate: getline does, and so may the functions
// of a stream made by fopencookie. So whoever keeps other threads from allocating until the fork is made must have the
// list first, as libc has it with its own malloc. fork takes it once more then: it is a recursive lock.
#ifndef QY_OS_STREAMS_H
#define QY_OS_STREAMS_H

// libc's functions for it; null where there is none. A library that is loaded into each process looks for them when
// they are needed (api/dropin_late.c): what it refers to by name, the loader looks for at each start.
typedef struct qy_os_streams_calls {
    void (*lock)(void);
    void (*unlock)(void);
    void (*reset)(void);
} qy_os_streams_calls_t;
qy_os_streams_calls_t qy_os_streams_calls(void);
// Its variable that says that there is one thread; null where there is none.
const char *qy_os_streams_single(void);

// In a handler before the fork, ahead of all other locks; as often as there are handlers.
void qy_os_streams_hold(void);
// In the parent, behind all other locks, as often.
void qy_os_streams_let_go(void);
// In the child, once or more.
void qy_os_streams_in_child(void);

#endif
