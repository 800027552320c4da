// SPDX-License-Identifier: MIT
// sandbox.c: runs a command as containers and tracers let it run.
//   sandbox MODE command...
// docker: system calls that look into a process are refused, and ptrace ends it; no capabilities, another user.
// nofork: no process can be made. noproc: /proc is empty. traced: each of its system calls is seen, as by strace.
// Exit 77: not here.
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, value)
#define ON(nr, value) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1), RETURN(value)

static void filter(const struct sock_filter *code, size_t count) {
    const struct sock_fprog program = {(unsigned short)count, (struct sock_filter *)code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) exit(77);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0) exit(77);
}

static void docker(void) {
    for (int cap = 0; prctl(PR_CAPBSET_READ, cap) >= 0; cap++) prctl(PR_CAPBSET_DROP, cap);
    if (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) exit(77);
    const struct sock_filter code[] = {LOAD(nr), ON(SYS_ptrace, SECCOMP_RET_KILL_PROCESS),
        ON(SYS_process_vm_readv, SECCOMP_RET_ERRNO | EPERM), ON(SYS_process_vm_writev, SECCOMP_RET_ERRNO | EPERM),
        ON(SYS_kcmp, SECCOMP_RET_KILL_PROCESS), ON(SYS_perf_event_open, SECCOMP_RET_KILL_PROCESS),
        ON(SYS_unshare, SECCOMP_RET_ERRNO | EPERM), ON(SYS_setns, SECCOMP_RET_ERRNO | EPERM),
        ON(SYS_mount, SECCOMP_RET_ERRNO | EPERM), ON(SYS_userfaultfd, SECCOMP_RET_ERRNO | EPERM),
        RETURN(SECCOMP_RET_ALLOW)};
    filter(code, sizeof code / sizeof code[0]);
}

// clone3 is refused as where it is not known: libc then makes its threads by clone.
static void nofork(void) {
    const struct sock_filter code[] = {LOAD(nr), ON(SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3), LOAD(args[0]),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 0), RETURN(SECCOMP_RET_ERRNO | EAGAIN),
        RETURN(SECCOMP_RET_ALLOW)};
    filter(code, sizeof code / sizeof code[0]);
}

static void noproc(void) {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", "/proc", "tmpfs", 0, NULL) != 0)
        exit(77);
}

// Of a process, and of all that it makes.
static void see_all(pid_t first) {
    int status = 0, of_first = 0;
    const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                         PTRACE_O_EXITKILL;
    for (pid_t p; (p = waitpid(-1, &status, __WALL)) > 0;) {
        if (!WIFSTOPPED(status)) {
            if (p == first) of_first = status;
            continue;
        }
        int signal = WSTOPSIG(status);
        ptrace(PTRACE_SETOPTIONS, p, NULL, options);
        if (signal == (SIGTRAP | 0x80) || signal == SIGTRAP || signal == SIGSTOP) signal = 0;
        ptrace(PTRACE_SYSCALL, p, NULL, (long)signal);
    }
    exit(WIFEXITED(of_first) ? WEXITSTATUS(of_first) : 1);
}

static void traced(void) {
    pid_t child = fork();
    if (child > 0) see_all(child);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) exit(77);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    // The library is for the command alone.
    const char *library = getenv("SANDBOX_PRELOAD");
    if (strcmp(argv[1], "docker") == 0) docker();
    else if (strcmp(argv[1], "nofork") == 0) nofork();
    else if (strcmp(argv[1], "noproc") == 0) noproc();
    else if (strcmp(argv[1], "traced") == 0) traced();
    else return 2;
    if (library) setenv("LD_PRELOAD", library, 1);
    execv(argv[2], argv + 2);
    perror(argv[2]);
    return 2;
}
