// SPDX-License-Identifier: MIT
// modules.h: which files are mapped as parts of the program, told in the trace so that addresses can be named later.
//
// Files come and go at the same addresses. A node of the tree of stacks has no time. Its id says when it was made:
// ids only grow. So a module is told with the last id that was there before it (`nodes`). Its end is told with the last
// id that may lie in it. Nodes of unloaded code are found no more (stacks_tree.h), so what comes there has new ids.
#ifndef QY_TRACE_MODULES_H
#define QY_TRACE_MODULES_H

#include "trace/writer.h"

// Tell `w` what has been loaded or unloaded since anybody told it; costs 50 ns if nothing has. Between begin and end,
// and without locks. If another thread is at it, this one leaves it to that.
void qy_modules_write(qy_writer_t *w);
// Something is about to be unloaded, and was. In between, and until somebody has told it, no stack of any thread is one
// that was there before: another file may be loaded in that place and allocate before the call that unloads has
// returned. `w` as above, or NULL.
void qy_modules_closing(void);
void qy_modules_closed(qy_writer_t *w);
// The same before a node of the tree of stacks is told, whose id was just taken: so what it lies in is told before it.
void qy_modules_before_node(qy_writer_t *w, uint32_t id);
// Nothing has been told yet: the child of a fork, with a file of its own.
void qy_modules_restart(void);
// Around a fork: wait until nobody is at it, so that the dynamic linker's lock is not held because of us.
void qy_modules_freeze(void);
void qy_modules_thaw(void);

#endif
