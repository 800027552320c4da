// SPDX-License-Identifier: MIT
// rerun.h: run this very program again with other arguments, in a fresh process, and see how it ends.
#ifndef QUARRY_TESTS_RERUN_H
#define QUARRY_TESTS_RERUN_H

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include "harness.h"

typedef struct rerun {
    int status;     // as of waitpid; -1: it hung and was killed
    size_t length;  // of what it wrote to stderr, as far as it fits
    char text[4096];
} rerun_t;

// argv[0] is filled in. The descriptors in `closed` (a bit each) are closed; stderr comes back unless
// it is among them.
static rerun_t rerun(char **argv, unsigned closed) {
    rerun_t r = {.status = 0};
    static char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    CHECK_GT(n, 0);
    path[n] = '\0';
    argv[0] = path;
    int fds[2];
    CHECK_EQ(pipe(fds), 0);
    fflush(stdout);
    pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (pid == 0) {
        dup2(fds[1], 2);
        close(fds[0]);
        if (fds[1] != 2) close(fds[1]);
        for (int fd = 0; fd < 3; fd++) {
            if (closed >> fd & 1) close(fd);
        }
        execv(path, argv);
        _exit(126);
    }
    close(fds[1]);
    for (struct pollfd p = {fds[0], POLLIN, 0};;) {
        int ready = poll(&p, 1, TEST_PATIENCE * 1000);
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) {
            kill(pid, SIGKILL);
            waitpid(pid, NULL, 0);
            r.status = -1;
            break;
        }
        size_t room = sizeof r.text - 1 - r.length;
        char rest[512];
        n = read(fds[0], room ? r.text + r.length : rest, room ? room : sizeof rest);
        if (n <= 0) break;
        if (room) r.length += (size_t)n;
    }
    close(fds[0]);
    r.text[r.length] = '\0';
    if (r.status == 0) CHECK_EQ(waitpid(pid, &r.status, 0), pid);
    return r;
}

// How it ended, for messages.
__attribute__((unused)) static const char *rerun_end(const rerun_t *r) {
    static char text[100];
    if (r->status == -1) return "hung";
    if (WIFSIGNALED(r->status)) snprintf(text, sizeof text, "died of signal %d", WTERMSIG(r->status));
    else snprintf(text, sizeof text, "exited with %d", WEXITSTATUS(r->status));
    return text;
}

#endif
