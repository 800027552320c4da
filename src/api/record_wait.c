// SPDX-License-Identifier: MIT
// record_wait.c: the calls that wait for children, so that the trace says how these ended; in libquarry-record only.
// A child that a signal kills cannot say it. What the C library calls within system() and pclose() does not come here.
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#include "api/record.h"

typedef pid_t wait_t(int *status);
typedef pid_t waitpid_t(pid_t pid, int *status, int options);
typedef pid_t wait3_t(int *status, int options, struct rusage *usage);
typedef pid_t wait4_t(pid_t pid, int *status, int options, struct rusage *usage);
typedef int waitid_t(idtype_t type, id_t id, siginfo_t *info, int options);

static wait_t *real_wait;
static waitpid_t *real_waitpid;
static wait3_t *real_wait3;
static wait4_t *real_wait4;
static waitid_t *real_waitid;

// Found before there is a second thread.
__attribute__((constructor)) static void wait_find_real(void) {
    *(void **)&real_wait = qy_real_symbol("wait");
    *(void **)&real_waitpid = qy_real_symbol("waitpid");
    *(void **)&real_wait3 = qy_real_symbol("wait3");
    *(void **)&real_wait4 = qy_real_symbol("wait4");
    *(void **)&real_waitid = qy_real_symbol("waitid");
}

// The call has returned. A child that was stopped or goes on has not ended.
static pid_t waited(pid_t child, const int *status) {
    if (child > 0 && (WIFEXITED(*status) || WIFSIGNALED(*status))) qy_record_child(child, *status);
    return child;
}

static pid_t no_call(void) {
    errno = ENOSYS;
    return -1;
}

#define NEED(function) (QY_LIKELY(function) || (wait_find_real(), function))

QY_EXPORT pid_t wait(int *status) {
    int own = 0, *to = status ? status : &own;
    return NEED(real_wait) ? waited(real_wait(to), to) : no_call();
}

QY_EXPORT pid_t waitpid(pid_t pid, int *status, int options) {
    int own = 0, *to = status ? status : &own;
    return NEED(real_waitpid) ? waited(real_waitpid(pid, to, options), to) : no_call();
}

QY_EXPORT pid_t wait3(int *status, int options, struct rusage *usage) {
    int own = 0, *to = status ? status : &own;
    return NEED(real_wait3) ? waited(real_wait3(to, options, usage), to) : no_call();
}

QY_EXPORT pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage) {
    int own = 0, *to = status ? status : &own;
    return NEED(real_wait4) ? waited(real_wait4(pid, to, options, usage), to) : no_call();
}

// It says in another form what wait() says.
QY_EXPORT int waitid(idtype_t type, id_t id, siginfo_t *info, int options) {
    siginfo_t own = {0}, *to = info ? info : &own;
    if (!NEED(real_waitid)) return no_call();
    int r = real_waitid(type, id, to, options);
    if (r) return r;
    switch (to->si_code) {
    case CLD_EXITED: waited(to->si_pid, &(int){(to->si_status & 0xff) << 8}); break;
    case CLD_KILLED:
    case CLD_DUMPED: waited(to->si_pid, &(int){to->si_status & 0x7f}); break;
    default: break;
    }
    return r;
}
