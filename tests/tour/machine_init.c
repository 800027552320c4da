// SPDX-License-Identifier: MIT
// machine_init.c: the first and only program of the virtual machine that machine.py starts: switches swap and merging
// of pages on, runs the chapters that need them, and switches off.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/wait.h>
#include <unistd.h>

static void put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0) printf("machine: cannot write %s\n", path);
    if (fd >= 0) close(fd);
}

int main(int argc, char **argv) {
    (void)argc, (void)argv;
    setvbuf(stdout, NULL, _IONBF, 0);
    mkdir("/proc", 0755), mkdir("/sys", 0755), mkdir("/dev", 0755);
    if (mount("proc", "/proc", "proc", 0, NULL) || mount("sys", "/sys", "sysfs", 0, NULL) ||
        mount("dev", "/dev", "devtmpfs", 0, NULL) || mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, NULL))
        perror("machine: mount");
    // The kernel looks for disks on its own time.
    for (int i = 0; i < 100 && access("/dev/nvme0n1", F_OK) != 0; i++) usleep(100000);
    if (swapon("/dev/nvme0n1", 0)) perror("machine: swapon");
    // For the chapter on swap memory is short, so that what was swapped out has to be read from the disk.
    put("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
    mkdir("/sys/fs/cgroup/short", 0755);
    put("/sys/fs/cgroup/short/memory.high", "12M");
    setenv("QUARRY_TOUR_SYSTEM", "1", 1);
    static const char *const chapters[] = {"21-ksm", "22-swap"};
    for (size_t i = 0; i < sizeof chapters / sizeof *chapters; i++) {
        char path[64];
        snprintf(path, sizeof path, "/%s", chapters[i]);
        printf("machine: begin %s\n", chapters[i]);
        pid_t pid = fork();
        if (pid == 0) {
            if (strstr(path, "swap")) put("/sys/fs/cgroup/short/cgroup.procs", "0");
            execl(path, path, (char *)NULL);
            _exit(126);
        }
        int status = -1;
        while (waitpid(-1, &status, 0) != pid) {}  // orphans come to us
        printf("machine: %s ended with 0x%x\n", chapters[i], (unsigned)status);
    }
    char merging = '?';
    int fd = open("/sys/kernel/mm/ksm/run", O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && read(fd, &merging, 1) != 1) merging = '?';
    printf("machine: merging is %c\n", merging);
    reboot(RB_POWER_OFF);
    return 0;
}
