// SPDX-License-Identifier: MIT
// file.c: files, for diagnostics and for the kernel's own.
#include "os/file.h"

#include <fcntl.h>

#include "os/fake.h"
#include "os/syscall.h"

bool qy_os_write(int fd, const void *buf, size_t bytes) {
    if (qy_os_fake_fails(QY_OS_WRITE)) return false;
    const char *at = buf;
    while (bytes) {
        long n = qy_syscall(SYS_write, fd, at, bytes);
        if (n == -EINTR) continue;
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

int qy_os_open_append(const char *path) {
    if (qy_os_fake_fails(QY_OS_OPEN)) return -1;
    long fd = qy_syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
    return fd < 0 ? -1 : (int)fd;
}

void qy_os_close(int fd) { qy_syscall(SYS_close, fd); }

int qy_os_open_read(const char *path) {
    if (qy_os_fake_fails(QY_OS_OPEN)) return -1;
    long fd = qy_syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    return fd < 0 ? -1 : (int)fd;
}

long qy_os_read(int fd, void *buf, size_t bytes) {
    long n;
    do n = qy_syscall(SYS_read, fd, buf, bytes);
    while (n == -EINTR);
    return n;
}

size_t qy_os_read_small(const char *path, char *buf, size_t bytes) {
    int fd = qy_os_open_read(path);
    if (fd < 0) return 0;
    long n = qy_os_read(fd, buf, bytes - 1);
    qy_os_close(fd);
    buf[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}
