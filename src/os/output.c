// SPDX-License-Identifier: MIT
// output.c: a file that stays open beside those of the program.
#include "os/output.h"

#include <fcntl.h>
#include <signal.h>

#include "os/mapfile.h"
#include "os/os.h"
#include "os/syscall.h"

// Programs count up from 0, shells take 255 and a few below. Higher costs the kernel's table of descriptors 8 bytes for
// each number, so not as high as the limit, which may be a million.
static int output_move_up(int fd) {
    static const int places[] = {960, 224, 48, 3};
    for (unsigned i = 0; i < sizeof places / sizeof *places; i++) {
        if (fd >= places[i]) return fd;
        long up = qy_syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, places[i]);
        if (up < 0) continue;  // above the limit
        qy_syscall(SYS_close, fd);
        return (int)up;
    }
    // All are taken. As one of the first three it would get what the program says on its standard error.
    qy_syscall(SYS_close, fd);
    return -1;
}

bool qy_os_output_know(int fd, qy_output_t *ret_output) {
    qy_file_stat_t st;
    *ret_output = (qy_output_t){.fd = -1};
    if (fd < 0 || qy_os_file_stat(fd, &st) < 0) return false;
    *ret_output = (qy_output_t){fd, st.device, st.inode};
    return true;
}

bool qy_os_output_open(const char *path, qy_output_t *ret_output) {
    int fd = qy_os_open_append(path);
    if (fd >= 0) fd = output_move_up(fd);
    if (qy_os_output_know(fd, ret_output)) return true;
    if (fd >= 0) qy_os_close(fd);
    return false;
}

// Under a filter of system calls that knows only what the C library does: ours was opened for appending, as few are.
static bool is_like_ours(const qy_output_t *output) {
    long flags = qy_syscall(SYS_fcntl, output->fd, F_GETFL);
    return flags >= 0 && (flags & O_APPEND);
}

bool qy_os_output_is(const qy_output_t *output) {
    qy_file_stat_t st;
    if (output->fd < 0) return false;
    int answer = qy_os_file_stat(output->fd, &st);
    if (answer == -EPERM || answer == -ENOSYS) return is_like_ours(output);
    return !answer && st.device == output->device && st.inode == output->inode;
}

void qy_os_output_close(qy_output_t *output) {
    if (qy_os_output_is(output)) qy_os_close(output->fd);
    output->fd = -1;
}

// What a limit of file sizes does to a write is told by the error; the signal beside it would end the program. A filter
// of system calls may allow no other way to change the mask than to set it whole (tor's), or none: then it stays.
bool qy_os_output_write(const qy_output_t *output, const void *buf, size_t bytes) {
    const uint64_t too_large = UINT64_C(1) << (SIGXFSZ - 1);
    const struct timespec at_once = {0, 0};
    uint64_t before, blocked;
    bool is_blocked = qy_syscall(SYS_rt_sigprocmask, SIG_SETMASK, NULL, &before, sizeof before) == 0;
    if (is_blocked) {
        blocked = before | too_large;
        is_blocked = qy_syscall(SYS_rt_sigprocmask, SIG_SETMASK, &blocked, NULL, sizeof blocked) == 0;
    }
    bool done = qy_os_write(output->fd, buf, bytes);
    if (!is_blocked) return done;
    if (!done) qy_syscall(SYS_rt_sigtimedwait, &too_large, NULL, &at_once, sizeof too_large);
    qy_syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
    return done;
}
