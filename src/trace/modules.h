// SPDX-License-Identifier: MIT
// modules.h: the program's modules as records of a trace; stacks/modules.h finds them.
//
// A module's record has the last id of a stack's node that was there before it (`nodes`). The record of its end has the
// last id that may lie in it. The argument of qy_modules_write and the others is a writer, between begin and end.
#ifndef QY_TRACE_MODULES_H
#define QY_TRACE_MODULES_H

#include "stacks/modules.h"

// Once, before the first writer. / In the child of a fork, with a file of its own.
void qy_trace_modules_begin(void);
void qy_trace_modules_restart(void);

#endif
