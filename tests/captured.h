// SPDX-License-Identifier: MIT
// captured.h: what a piece of code wrote to fd 2, and how the process that ran it ended.
#ifndef QUARRY_TESTS_CAPTURED_H
#define QUARRY_TESTS_CAPTURED_H

#include <signal.h>
#include <sys/wait.h>

#include "harness.h"

typedef struct captured {
    char text[8192];
    size_t length;
    int exit_code;    // -1 if a signal ended it
    int exit_signal;  // 0 if none did
} captured_t;

// Runs body(arg) in a child; if it returns, the child exits with 0.
__attribute__((unused)) static captured_t capture(void (*body)(void *arg), void *arg) {
    captured_t c;
    c.length = 0;
    int fds[2], status;
    CHECK_EQ(pipe(fds), 0);
    fflush(stdout);
    pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (pid == 0) {
        dup2(fds[1], 2);
        close(fds[0]);
        close(fds[1]);
        body(arg);
        _exit(0);
    }
    close(fds[1]);
    ssize_t n;
    while (c.length < sizeof c.text - 1 && (n = read(fds[0], c.text + c.length, sizeof c.text - 1 - c.length)) > 0)
        c.length += (size_t)n;
    c.text[c.length] = '\0';
    close(fds[0]);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    c.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    c.exit_signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return c;
}

// Runs body(arg) in a child of its own, whose CHECKs are ours.
__attribute__((unused)) static void run_apart(void (*body)(void *arg), void *arg) {
    captured_t c = capture(body, arg);
    if (c.exit_code != 0) TEST_FAIL("the child ended with %d, signal %d: %.400s", c.exit_code, c.exit_signal, c.text);
}

#endif
