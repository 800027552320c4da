// SPDX-License-Identifier: MIT
// tasks.c: see tasks.h.
#include "os/tasks.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "os/fake.h"
#include "os/file.h"
#include "os/syscall.h"

#define ID_MOST (4 * 1024 * 1024)  // the kernel's limit of numbers of threads
#define ENTRY_NAME 19              // of linux_dirent64: after two words, a length of 16 bits and a byte

static int number_at(const char *text) {
    int n = 0;
    for (; *text >= '0' && *text <= '9'; text++) n = n * 10 + (*text - '0');
    return n;
}

// True: all of them were told, or fn said no.
static bool each_listed(int fd, bool (*fn)(int thread, void *arg), void *arg) {
    char entries[4096] __attribute__((aligned(8)));
    long n;
    while ((n = qy_syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0)
        for (long at = 0; at < n;) {
            uint16_t length;
            memcpy(&length, entries + at + 16, sizeof length);
            int thread = number_at(entries + at + ENTRY_NAME);
            if (thread && !fn(thread, arg)) return true;
            at += length;
        }
    return n == 0;
}

static bool each_tried(bool (*fn)(int thread, void *arg), void *arg, uint64_t deadline) {
    int me = qy_os_process_id();
    for (int thread = 1; thread < ID_MOST; thread++) {
        if (thread % 1024 == 0 && qy_os_now_ns() >= deadline) return false;
        if (qy_syscall(SYS_tgkill, me, thread, 0) == 0 && !fn(thread, arg)) return true;
    }
    return true;
}

bool qy_os_each_task(bool (*fn)(int thread, void *arg), void *arg, uint64_t deadline) {
    int fd = qy_os_open_read("/proc/self/task");
    if (fd < 0) return each_tried(fn, arg, deadline);
    bool all = each_listed(fd, fn, arg);
    qy_os_close(fd);
    return all;
}

long qy_os_task_signal(int thread, int signal) { return qy_syscall(SYS_tgkill, qy_os_process_id(), thread, signal); }

static uint64_t hex_at(const char *text) {
    uint64_t n = 0;
    for (;; text++) {
        if (*text >= '0' && *text <= '9') n = n << 4 | (uint64_t)(*text - '0');
        else if (*text >= 'a' && *text <= 'f') n = n << 4 | (uint64_t)(*text - 'a' + 10);
        else return n;
    }
}

static size_t task_digits(char *to, unsigned n) {
    char digits[12];
    size_t count = 0, at = 0;
    do digits[count++] = (char)('0' + n % 10);
    while (n /= 10);
    while (count) to[at++] = digits[--count];
    return at;
}

static uint64_t count_after(const char *text, const char *name) {
    const char *at = strstr(text, name);
    uint64_t n = 0;
    for (at += at ? strlen(name) : 0; at && *at >= '0' && *at <= '9'; at++) n = n * 10 + (uint64_t)(*at - '0');
    return n;
}

qy_os_task_state_t qy_os_task_state(int thread, int signal, uint64_t *ret_switches) {
    char path[64] = "/proc/self/task/", text[4096];
    *ret_switches = 0;
    if (qy_os_task_signal(thread, 0) == -ESRCH) return QY_TASK_GONE;
    size_t at = strlen(path);
    at += task_digits(path + at, (unsigned)thread);
    memcpy(path + at, "/status", sizeof "/status");
    if (!qy_os_read_small(path, text, sizeof text)) return QY_TASK_LISTENS;
    const char *state = strstr(text, "\nState:\t"), *blocked = strstr(text, "\nSigBlk:\t");
    if (state && (state[8] == 'Z' || state[8] == 'X')) return QY_TASK_GONE;
    *ret_switches = count_after(text, "\nvoluntary_ctxt_switches:\t");
    if (!state || state[8] != 'S') *ret_switches = UINT64_MAX;
    if (!blocked) return QY_TASK_LISTENS;
    return hex_at(blocked + 9) >> (signal - 1) & 1 ? QY_TASK_DEAF : QY_TASK_LISTENS;
}

// ---- a copy -----------------------------------------------------------------------------------------------

// The signal at its end is none, and so it is a child that only a wait for such children finds.
long qy_os_copy(void) {
    if (qy_os_fake_fails(QY_OS_SPAWN)) return -EAGAIN;
#if defined(__x86_64__) || defined(__aarch64__)
    return qy_syscall(SYS_clone, 0, 0, 0, 0, 0);
#else
    return -ENOSYS;
#endif
}

bool qy_os_copy_ended(int process, bool wait, bool *ret_ok) {
    int status = 0;
    long n;
    do n = qy_syscall(SYS_wait4, process, &status, __WCLONE | (wait ? 0 : WNOHANG), NULL);
    while (n == -EINTR);
    if (n == 0) return false;
    *ret_ok = n == process && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return true;
}

void qy_os_copy_kill(int process) { qy_syscall(SYS_kill, process, SIGKILL); }

_Noreturn void qy_os_copy_end(int status) {
    for (;;) qy_syscall(SYS_exit_group, status);
}

static void close_between(unsigned first, unsigned last) {
    if (first > last) return;
#ifdef SYS_close_range
    if (qy_syscall(SYS_close_range, first, last, 0) == 0) return;
#endif
    struct rlimit files = {1024, 1024};
    qy_syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &files);
    for (unsigned fd = first; fd <= last && fd < files.rlim_cur; fd++) qy_syscall(SYS_close, fd);
}

void qy_os_copy_keep_only(int fd) {
    // A fault within is the end of the copy, and of nothing else.
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS};
    const uint64_t by_default[4] = {0};
    const struct rlimit no_core = {0, 0};
    qy_syscall(SYS_prlimit64, 0, RLIMIT_CORE, &no_core, NULL);
    for (unsigned i = 0; i < sizeof faults / sizeof faults[0]; i++)
        qy_syscall(SYS_rt_sigaction, faults[i], by_default, NULL, sizeof(uint64_t));
    if (fd > 0) close_between(0, (unsigned)fd - 1);
    close_between((unsigned)(fd + 1), UINT32_MAX >> 1);
}
