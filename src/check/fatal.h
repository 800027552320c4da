// SPDX-License-Identifier: MIT
// fatal.h: the heap itself is about to end the program, since a block that was free was written to.
#ifndef QY_CHECK_FATAL_H
#define QY_CHECK_FATAL_H

// From now on that is a report, with all that canaries and freed blocks say, before the program ends.
void qy_check_fatal_begin(void);

#endif
