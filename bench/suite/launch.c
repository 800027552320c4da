// SPDX-License-Identifier: MIT
// launch.c: starts one program for `quarry bench suite`, waits for it, and writes what the kernel says of it to a file.
//
//   launch FILE [NAME=VALUE...] -- PROGRAM [ARGUMENT...]
//
// The kernel's peak of a process begins with the memory of the process that forked it. This one is small, so that the
// peak is the program's. The file gets a line of three numbers: the peak in KiB, page faults that waited for a disk,
// and page faults that did not. The status is the program's, or 128 and the number of the signal that ended it. Status
// 125 says that this program failed, and 127 that the other one could not be started.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FAILED = 125,
    NOT_STARTED = 127,
    SIGNALLED = 128 };

// The variables are for the program alone: a malloc that is preloaded would otherwise be in this process, too.
static void become(char **settings, char **command, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(FAILED);
    for (; *settings != command[-1]; settings++) putenv(*settings);
    execvp(command[0], command);
    perror(command[0]);
    _exit(NOT_STARTED);
}

int main(int argc, char **argv) {
    int at = 2;
    while (at < argc && strcmp(argv[at], "--")) at++;
    if (at + 1 >= argc)
        return fprintf(stderr, "usage: %s FILE [NAME=VALUE...] -- PROGRAM [ARGUMENT...]\n", argv[0]), FAILED;
    const pid_t parent = getpid(), pid = fork();
    if (!pid) become(argv + 2, argv + at + 1, parent);
    int status = 0;
    struct rusage usage;
    if (pid < 0 || wait4(pid, &status, 0, &usage) != pid) return perror("launch"), FAILED;
    FILE *file = fopen(argv[1], "w");
    if (!file) return perror(argv[1]), FAILED;
    fprintf(file, "%ld %ld %ld\n", usage.ru_maxrss, usage.ru_majflt, usage.ru_minflt);
    if (fclose(file)) return perror(argv[1]), FAILED;
    return WIFSIGNALED(status) ? SIGNALLED + WTERMSIG(status) : WEXITSTATUS(status);
}
