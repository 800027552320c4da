/* SPDX-License-Identifier: MIT
 * Leaves a process behind that was made as threads are made: it sends no signal when it ends. Says its number.
 * "at-once": ends at once; else after a moment.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int count, char **arguments) {
    long pid = syscall(SYS_clone, 0, 0, 0, 0, 0);
    if (pid < 0) {
        return 1;
    }
    if (pid == 0) {
        setsid();
        close(0);
        close(1);
        close(2);
        sleep(1000);
        _exit(0);
    }
    printf("%ld\n", pid);
    fflush(stdout);
    if (count < 2 || strcmp(arguments[1], "at-once") != 0) {
        usleep(200000);
    }
    return 0;
}
