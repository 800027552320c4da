// SPDX-License-Identifier: MIT
// modules.h: which files are mapped as parts of the program, so that the addresses in stacks can be named later.
//
// Files come and go at the same addresses. A node of the tree of stacks has no time. Its id says when it was made:
// ids only grow. So a module is told with the last id that was there before it (qy_stacks_seen). Its end is told with
// the last id that may lie in it (qy_stacks_ids). Nodes of unloaded code are found no more (stacks_tree.h), so what
// comes there has new ids.
//
// A library has one teller, which writes to a trace or into a table. `arg` is what the library knows of the calling
// thread. It is the argument of the thread's captures, too.
#ifndef QY_STACKS_MODULES_H
#define QY_STACKS_MODULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "os/loaded.h"

typedef struct qy_modules_teller {
    // Is the calling thread at it? Set while it looks: what the teller calls may come here again.
    bool *(*looking)(void *arg);
    // Called by one thread at a time, between begin and end of a look at which something had changed. `base` is that of
    // a module that was told before. A module without a segment is none.
    void (*loaded)(void *arg, const qy_os_loaded_t *l);
    void (*gone)(void *arg, uintptr_t base);
    void (*done)(void *arg);
} qy_modules_teller_t;

// Once, before anything else.
void qy_modules_begin(const qy_modules_teller_t *teller);
// Tell what has been loaded or unloaded since anybody told it; costs 50 ns if nothing has. Without locks. If another
// thread is at it, this one leaves it to that.
void qy_modules_write(void *arg);
// Something is about to be unloaded, and was. In between, and until somebody has told it, no stack of any thread is one
// that was there before: another file may be loaded in that place and allocate before the call that unloads has
// returned. `arg` NULL: this thread can't tell.
void qy_modules_closing(void);
void qy_modules_closed(void *arg);
// The same before a node of the tree of stacks is told, whose id was just taken: so what it lies in is told before it.
void qy_modules_before_node(void *arg, uint32_t id);
// Nothing has been told yet: the child of a fork, with a file of its own.
void qy_modules_restart(void);
// Around a fork: wait until nobody is at it, so that the dynamic linker's lock is not held because of us.
void qy_modules_freeze(void);
void qy_modules_thaw(void);
// In the child, if it goes on with the tree: threads that were unloading are not there, so its next stack settles that.
void qy_modules_in_child(void);

#endif
