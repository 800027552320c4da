// SPDX-License-Identifier: MIT
// fatal.h: the heap itself is about to end the program, since a block that was free was written to; or a pool is, since
// it was misused.
#ifndef QY_CHECK_FATAL_H
#define QY_CHECK_FATAL_H

// From now on that is a report, with all that canaries and freed blocks say, before the program ends.
void qy_check_fatal_begin(void);
// The program is about to be ended with SIGABRT: all that canaries and freed blocks say is reported, and the report
// ends. Nothing calls the heap, which may hold locks.
void qy_check_fatal_end(void);

#endif
