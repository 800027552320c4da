// SPDX-License-Identifier: MIT
// under.c: starts a program under a seccomp filter. modes.py makes the filter and says why.
//
//   under FILTER PROGRAM ARGUMENT...    FILTER is a file of struct sock_filter
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv) {
    static struct sock_filter code[BPF_MAXINSNS];
    if (argc < 3) return 125;
    int fd = open(argv[1], O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, code, sizeof code);
    struct sock_fprog program = {(unsigned short)(n > 0 ? (size_t)n / sizeof *code : 0), code};
    // Root needs no such vow, which would take the rights from programs that change their user.
    if (geteuid() != 0) prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (n <= 0 || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) {
        perror("under: no filter");
        return 125;
    }
    execv(argv[2], argv + 2);
    return 126;
}
