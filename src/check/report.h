// SPDX-License-Identifier: MIT
// report.h: the file of reports: how it begins and ends. What stands in it: docs/check.md.
#ifndef QY_CHECK_REPORT_H
#define QY_CHECK_REPORT_H

#include "check/check.h"
#include "rt/lock.h"

// The process's first report, or with option out: its file is there from the start.
void qy_check_report_begin(void);
// The process ends, or becomes another program. `how`: exit, exec.
void qy_check_report_end(const char *how, int status);
// It does not.
void qy_check_report_goes_on(void);
// In the child of a fork: it gets a file of its own when it has something to say.
void qy_check_report_in_child(void);

qy_lock_t *qy_check_report_lock(void);  // for fork

// text.c: the report as lines for people, on descriptor 2.
void qy_check_text(const qy_check_fault_t *f, uint32_t stack);

#endif
