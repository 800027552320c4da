// SPDX-License-Identifier: MIT
// life.h: how checking begins, goes on in children, and ends.
#ifndef QY_CHECK_LIFE_H
#define QY_CHECK_LIFE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/compiler.h"
#include "check/frames.h"

// 2: options are read and stacks are taken. Before that blocks are checked, and their stacks are unknown.
extern QY_HIDDEN _Atomic int qy_check_state;
QY_INLINE bool qy_check_is_up(void) { return atomic_load_explicit(&qy_check_state, memory_order_acquire) == 2; }
// From the first malloc on, until the process knows its environment.
QY_COLD void qy_check_start(void);
// From the library's constructor: what needs a working libc.
void qy_check_constructed(void);

// The process ends; `how`: exit. Once. Not of a child of vfork, which is in its parent's memory.
void qy_check_end(const char *how, int status);
// With which status, where the caller of qy_check_end does not know.
void qy_check_note_status(int status);
// The process becomes another program: its blocks are looked at, and its file ends. / That has failed.
bool qy_check_exec(void);
void qy_check_exec_failed(void);

#endif
