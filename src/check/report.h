// SPDX-License-Identifier: MIT
// report.h: the file of reports: how it begins and ends. What stands in it: docs/check.md.
#ifndef QY_CHECK_REPORT_H
#define QY_CHECK_REPORT_H

#include "check/check.h"
#include "rt/json.h"
#include "rt/lock.h"

// The process's first report, or with option out: its file is there from the start.
void qy_check_report_begin(void);
// The process ends, or becomes another program. `how`: exit, exec.
void qy_check_report_end(const char *how, int status);
// It does not.
void qy_check_report_goes_on(void);
// In the child of a fork: it gets a file of its own when it has something to say. `parent`: as it calls itself.
void qy_check_report_in_child(int parent);

qy_lock_t *qy_check_report_lock(void);  // for fork
// From here on nobody else reports, and the process's file is begun. Returns what lets them go on.
uint64_t qy_check_report_hold(void);
void qy_check_report_let_go(uint64_t mask);

// A line {"what":{...}}, of which `fill` writes the fields; the modules of the stack are told before it. False: there
// is no file, and what is to be said is text. Also within a hold.
bool qy_check_report_line(const char *what, uint32_t stack, void (*fill)(qy_json_t *j, void *arg), void *arg);
void qy_check_put_text(qy_json_t *j, const char *key, const char *text);
void qy_check_put_u64(qy_json_t *j, const char *key, uint64_t n);
void qy_check_put_address(qy_json_t *j, const char *key, uintptr_t address);
void qy_check_put_stack(qy_json_t *j, uint32_t stack);
const char *qy_check_family_name(unsigned family);
// The path of the file may soon lead nowhere, or the process may open nothing: it is kept open from here on. Any
// thread, also a child of vfork.
void qy_check_report_keep(void);
// From here on a filter of system calls may end the process: nothing but the write of a line is done with the file,
// which was kept before. Returns what was set.
bool qy_check_report_filtered(bool is);
bool qy_check_report_is_filtered(void);
// What reports are written to: the file while it is open, -1: it is opened for each line, or 2 where they are text.
int qy_check_report_descriptor(void);

// text.c: the report as lines for people, on descriptor 2.
void qy_check_text_stack(const char *title, uint32_t stack);
void qy_check_text(const qy_check_fault_t *f, uint32_t stack);

#endif
