// SPDX-License-Identifier: MIT
// output.h: a file that a library writes now and then, in a program whose descriptors are not ours.
//
// Daemons close all descriptors they find, and the numbers come to mean other files: the program's own. So ours lies
// out of the way of the numbers that programs get, and before each write the kernel is asked whether it still is the
// file that was opened. What remains is another thread that closes and opens between the question and the write.
// Threads: as for any structure; the calls themselves are thread-safe.
#ifndef QY_OS_OUTPUT_H
#define QY_OS_OUTPUT_H

#include "os/os.h"

typedef struct qy_output {
    int fd;  // -1: none
    uint64_t device, inode;
} qy_output_t;

// Open for appending, as qy_os_open_append. False: it cannot be; *ret_output is none.
bool qy_os_output_open(const char *path, qy_output_t *ret_output);
// What a descriptor of the program is now, for qy_os_output_is. False: nothing; *ret_output is none.
bool qy_os_output_know(int fd, qy_output_t *ret_output);
// Is the descriptor still that file? One system call.
bool qy_os_output_is(const qy_output_t *output);
// Append; false: not all of it could be written. No signal comes of a limit of file sizes.
bool qy_os_output_write(const qy_output_t *output, const void *buf, size_t bytes);
// Closed, if it still is that file; none from here on.
void qy_os_output_close(qy_output_t *output);

#endif
