// SPDX-License-Identifier: MIT
// machine_init.c: the first and only program of the virtual machine that machine.py starts. Sets the
// machine up as a test wants it, runs the test, says how it ended, and switches off.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0) printf("machine: cannot write %s\n", path);
    if (fd >= 0) close(fd);
}

static void run(const char *name, const char *program, const char *test) {
    pid_t pid = fork();
    if (pid == 0) {
        if (test) execl(program, program, test, (char *)NULL);
        else execl(program, program, (char *)NULL);
        _exit(126);
    }
    int status = -1;
    while (waitpid(-1, &status, 0) != pid) {}  // orphans come to us
    printf("machine: %s ended with 0x%x\n", name, (unsigned)status);
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    mkdir("/proc", 0755);
    mkdir("/sys", 0755);
    if (mount("proc", "/proc", "proc", 0, NULL) || mount("sys", "/sys", "sysfs", 0, NULL) ||
        mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, NULL)) {
        perror("machine: mount");
    } else {
        put("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
        setenv("QUARRY_TEST_CGROUP", "/sys/fs/cgroup", 1);
        run("cgroup", "/fault_cgroup", NULL);
        run("heuristic", "/fault_charge", "judged_by_the_kernel");
        put("/proc/sys/vm/overcommit_memory", "1");
        run("always", "/fault_charge", "judged_by_the_kernel");
        put("/proc/sys/vm/overcommit_memory", "2");
        run("charge", "/fault_charge", NULL);
    }
    sync();
    reboot(RB_POWER_OFF);
    return 0;
}
