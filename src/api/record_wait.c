// SPDX-License-Identifier: MIT
// record_wait.c: the calls that wait for children, so that the trace says how these ended; in libquarry-record only.
// A child that a signal kills cannot say it. Within system() and pclose() the C library waits by itself, and no caller
// learns the child's process id. So the trace has the time of the call, and the reader finds the child by it.
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "api/record.h"
#include "os/os.h"

typedef pid_t wait_t(int *status);
typedef pid_t waitpid_t(pid_t pid, int *status, int options);
typedef pid_t wait3_t(int *status, int options, struct rusage *usage);
typedef pid_t wait4_t(pid_t pid, int *status, int options, struct rusage *usage);
typedef int waitid_t(idtype_t type, id_t id, siginfo_t *info, int options);
typedef int system_t(const char *command);
typedef FILE *popen_t(const char *command, const char *mode);
typedef int pclose_t(FILE *stream);

static wait_t *real_wait;
static waitpid_t *real_waitpid;
static wait3_t *real_wait3;
static wait4_t *real_wait4;
static waitid_t *real_waitid;
static system_t *real_system;
static popen_t *real_popen;
static pclose_t *real_pclose;

// Streams to children, and when their popen began. Of more than this many at a time the end is not told.
enum { WAIT_STREAMS = 64 };
static struct {
    _Atomic(FILE *) stream;
    _Atomic uint64_t began_ns;
} wait_streams[WAIT_STREAMS];

// Found before there is a second thread.
__attribute__((constructor)) static void wait_find_real(void) {
    *(void **)&real_wait = qy_real_symbol("wait");
    *(void **)&real_waitpid = qy_real_symbol("waitpid");
    *(void **)&real_wait3 = qy_real_symbol("wait3");
    *(void **)&real_wait4 = qy_real_symbol("wait4");
    *(void **)&real_waitid = qy_real_symbol("waitid");
    *(void **)&real_system = qy_real_symbol("system");
    *(void **)&real_popen = qy_real_symbol("popen");
    *(void **)&real_pclose = qy_real_symbol("pclose");
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

// Without a command it says whether there is a shell, and no child is made.
QY_EXPORT int system(const char *command) {
    uint64_t began = qy_os_now_ns();
    int status = NEED(real_system) ? real_system(command) : no_call();
    if (command && status != -1) qy_record_hidden_child(status, began);
    return status;
}

// The time comes first: whoever finds the stream finds its time.
static void stream_opened(FILE *stream, uint64_t began_ns) {
    for (unsigned i = 0; i < WAIT_STREAMS; i++) {
        uint64_t none = 0;
        if (!atomic_compare_exchange_strong(&wait_streams[i].began_ns, &none, began_ns)) continue;
        atomic_store(&wait_streams[i].stream, stream);
        return;
    }
}

// When it was opened, and 0 if that is not known. Once only: the next stream may have its address.
static uint64_t stream_closes(FILE *stream) {
    for (unsigned i = 0; i < WAIT_STREAMS; i++) {
        FILE *known = stream;
        if (!atomic_compare_exchange_strong(&wait_streams[i].stream, &known, NULL)) continue;
        return atomic_exchange(&wait_streams[i].began_ns, 0);
    }
    return 0;
}

QY_EXPORT FILE *popen(const char *command, const char *mode) {
    uint64_t began = qy_os_now_ns();
    if (!NEED(real_popen)) return no_call(), NULL;
    FILE *stream = real_popen(command, mode);
    if (stream) stream_opened(stream, began);
    return stream;
}

QY_EXPORT int pclose(FILE *stream) {
    uint64_t began = stream ? stream_closes(stream) : 0;
    int status = NEED(real_pclose) ? real_pclose(stream) : no_call();
    if (began && status != -1) qy_record_hidden_child(status, began);
    return status;
}
