// SPDX-License-Identifier: MIT
// atfork.h: when the handlers of forks (fork.h) are registered.
//
// They must be the process's first: so they are the last before a fork and the first after it, and the handlers of
// others find the heap open.
//
// A small program is spared them: to register touches two pages of the C library, around which the kernel maps 128 KiB.
// A process with one thread needs none as long as what a child would do otherwise does not exist: the heap's own
// thread, an open statistics page, samples. So a drop-in waits until one of these comes, until another library
// registers handlers, or until the program makes a thread (api/dropin_fork.c). As long as there is one thread, no fork
// can be under way, and no child has a lock that nobody there would drop.
#ifndef QY_HEAP_ATFORK_H
#define QY_HEAP_ATFORK_H

#include <stdbool.h>

#include "base/compiler.h"

// The heap starts. Its handlers are registered now, or when they are needed.
typedef void qy_atfork_t(void);
void qy_atfork_begin(qy_atfork_t *prepare, qy_atfork_t *parent, qy_atfork_t *child);

// From here on the process must hear of forks. Cheap when it does already.
void qy_atfork_needed(void);

// A thread comes to the heap that is not the process's first, by what is known of that one.
void qy_atfork_thread(void);

// Drop-ins that see to it say whether handlers can wait. Elsewhere they cannot.
QY_HIDDEN bool qy_atfork_may_wait(void);
// How handlers are registered: by pthread_atfork, and in such a drop-in by a way past its own.
QY_HIDDEN int qy_atfork_register(qy_atfork_t *prepare, qy_atfork_t *parent, qy_atfork_t *child);

#endif
