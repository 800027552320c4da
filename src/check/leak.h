// SPDX-License-Identifier: MIT
// leak.h: leaks are looked for at the end of the process, when another process asks, or every so often.
//
//   os/stop.c      all other threads stand still, by a signal; a request is the same signal from elsewhere
//   os/tasks.c     a copy of the process is made, and the threads go on: the pause is over
//   leak_scan.c    in the copy: live blocks, roots, sums; where no copy can be had, in place
//   leak_blocks.c  from an address to its block; leak_roots.c where pointers begin
//   leak_flood.c   what can be reached; leak_pointer.c which words are pointers
//   leak_sites.c   sums by stack, and which of them grow
//   leak_report.c  the lines of the report
#ifndef QY_CHECK_LEAK_H
#define QY_CHECK_LEAK_H

#include <stdbool.h>

// From the library's constructor, with the options read.
void qy_leak_begin(void);
// The process ends: the last scan, if option leaks says so. The caller's signals are kept out meanwhile.
void qy_leak_at_exit(void);
// In the child of a fork.
void qy_leak_in_child(void);

#endif
