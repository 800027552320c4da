// SPDX-License-Identifier: MIT
// sandbox.c: a bare thread gives up everything it does not need.
//
// Credentials belong to threads. When a program drops its own (setuid after start), libc changes those
// of the threads it knows, and a bare thread would go on as root inside a process that is meant to be
// harmless: whoever takes over the process could use it. So it may make the few calls that giving
// memory back takes, and no other: it cannot open, execute, signal or trace anything. The filter and
// the promise not to gain privileges hold for this one thread.
//
// A process without privileges has none to drop and gets no filter: one thread with a filter of its own
// would make a later one for all threads (SECCOMP_FILTER_FLAG_TSYNC) fail.
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>

#include "os/os.h"
#include "os/syscall.h"

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#endif

#ifdef ARCH
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, value)
#define ALLOW(nr) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1), RETURN(SECCOMP_RET_ALLOW)

static bool differ(const uint32_t id[3]) { return id[0] != id[1] || id[0] != id[2]; }

// Could this process be meant to become less than it is?
static bool is_privileged(void) {
    uint32_t uid[3], gid[3];
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct caps[2];
    if (qy_syscall(SYS_getresuid, &uid[0], &uid[1], &uid[2]) != 0) return true;
    if (qy_syscall(SYS_getresgid, &gid[0], &gid[1], &gid[2]) != 0) return true;
    if (qy_syscall(SYS_capget, &head, caps) != 0) return true;
    return uid[0] == 0 || differ(uid) || differ(gid) || caps[0].permitted || caps[1].permitted;
}

bool qy_os_sandbox_thread(void) {
    if (!is_privileged()) return true;
    // The last four serve the end of a diagnosis: a line on stderr, and SIGABRT to this process only.
    const struct sock_filter code[] = {
        LOAD(arch),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0),
        RETURN(SECCOMP_RET_KILL_PROCESS),
        LOAD(nr),
        ALLOW(SYS_futex),
        ALLOW(SYS_madvise),
        ALLOW(SYS_munmap),
        ALLOW(SYS_mmap),
        ALLOW(SYS_exit),
        ALLOW(SYS_clock_gettime),
        ALLOW(SYS_getpid),
        ALLOW(SYS_gettid),
        ALLOW(SYS_write),
        ALLOW(SYS_rt_sigaction),
        ALLOW(SYS_rt_sigprocmask),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_tgkill, 0, 4),
        LOAD(args[0]),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)qy_os_process_id(), 0, 2),
        LOAD(args[2]),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SIGABRT, 1, 0),
        RETURN(SECCOMP_RET_ERRNO | EPERM),
        RETURN(SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof code / sizeof code[0], (struct sock_filter *)code};
    return qy_syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           qy_syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}
#else
bool qy_os_sandbox_thread(void) { return false; }
#endif

// ---- what a program does to itself ---------------------------------------------------------------------------------

#ifndef SYS_landlock_restrict_self
#define SYS_landlock_restrict_self 446
#endif

qy_os_confines_t qy_os_prctl_confines(int what) {
    return what == PR_SET_SECCOMP ? QY_CONFINES_CALLS : what == PR_SET_NO_NEW_PRIVS ? QY_CONFINES_PATHS
                                                                                    : QY_CONFINES_NOTHING;
}

qy_os_confines_t qy_os_call_confines(long number, long first) {
    switch (number) {
    case SYS_seccomp:
        return first == SECCOMP_SET_MODE_STRICT || first == SECCOMP_SET_MODE_FILTER ? QY_CONFINES_CALLS
                                                                                    : QY_CONFINES_NOTHING;
    case SYS_prctl: return qy_os_prctl_confines((int)first);
    case SYS_pivot_root:
    case SYS_chroot:
    case SYS_unshare:
    case SYS_setns:
    case SYS_landlock_restrict_self: return QY_CONFINES_PATHS;
    default: return QY_CONFINES_NOTHING;
    }
}
