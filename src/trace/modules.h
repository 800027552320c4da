// SPDX-License-Identifier: MIT
// modules.h: which files are mapped as parts of the program, told in the trace so that addresses can be named later.
#ifndef QY_TRACE_MODULES_H
#define QY_TRACE_MODULES_H

#include "trace/writer.h"

// Tell `w` what has been loaded or unloaded since anybody told it; costs 50 ns if nothing has. Between begin and end,
// and without locks. If another thread is at it, this one leaves it to that.
void qy_modules_write(qy_writer_t *w);
// Nothing has been told yet: the child of a fork, with a file of its own.
void qy_modules_restart(void);
// Around a fork: wait until nobody is at it, so that the dynamic linker's lock is not held because of us.
void qy_modules_freeze(void);
void qy_modules_thaw(void);

#endif
