// SPDX-License-Identifier: MIT
// rss.h: this process's memory, read without malloc and without stdio.
#ifndef QUARRY_TESTS_RSS_H
#define QUARRY_TESTS_RSS_H

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

// Column 0 of /proc/self/statm is address space, 1 is resident memory. In MiB; -1: not known.
static double statm_mib(int column) {
    char text[200];
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return -1;
    text[n] = '\0';
    char *at = text;
    long pages = strtol(at, &at, 10);
    if (column) pages = strtol(at, &at, 10);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / 1048576.0;
}

#endif
