// SPDX-License-Identifier: MIT
// record_exec.c: the calls by which a process runs another program: its trace ends, and the program's begins; in
// libquarry-record only.
#include "api/record.h"

#define EXEC_BEGINS(program) qy_record_exec(program)
#define EXEC_FAILED() qy_record_exec_failed()
#define EXEC_SYMBOL(name) qy_real_symbol(name)
#include "api/exec.h"
