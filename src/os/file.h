// SPDX-License-Identifier: MIT
// file.h: reading what the kernel writes in /proc and /sys. For src/os only.
#ifndef QY_OS_FILE_H
#define QY_OS_FILE_H

#include "os/os.h"

int qy_os_open_read(const char *path);             // -1 on failure
long qy_os_read(int fd, void *buf, size_t bytes);  // read(2), but never interrupted

// The beginning of a file, NUL-terminated; returns its length, 0 on failure.
size_t qy_os_read_small(const char *path, char *buf, size_t bytes);

#endif
