// SPDX-License-Identifier: MIT
// check_sandbox.c: calls after which the path of the reports may lead nowhere, or may not be opened; in
// libquarry-check only.
//
// A program that lists its descriptors shall find its own, so the file is closed between lines (check/report.c). These
// calls open it before they do what they are for. A program that makes a sandbox by system calls of its own, without
// libc's syscall(), mostly forbids new privileges before, by prctl.
#include <errno.h>
#include <stdarg.h>

#include "base/compiler.h"
#include "check/frames.h"
#include "check/life.h"
#include "check/report.h"
#include "heap/helper.h"
#include "os/loaded.h"
#include "os/os.h"

#define EXPORT __attribute__((visibility("default")))

// X(name, parameters, arguments)
#define CALLS(X)                                                                                             \
    X(chroot, (const char *path), (path))                                                                    \
    X(unshare, (int flags), (flags))                                                                         \
    X(setns, (int fd, int type), (fd, type))                                                                 \
    X(mount, (const char *what, const char *where, const char *type, unsigned long flags, const void *data), \
        (what, where, type, flags, data))                                                                    \
    X(setuid, (unsigned id), (id))                                                                           \
    X(seteuid, (unsigned id), (id))                                                                          \
    X(setreuid, (unsigned real, unsigned id), (real, id))                                                    \
    X(setresuid, (unsigned real, unsigned id, unsigned saved), (real, id, saved))                            \
    X(setfsuid, (unsigned id), (id))                                                                         \
    X(setgid, (unsigned id), (id))                                                                           \
    X(setegid, (unsigned id), (id))                                                                          \
    X(setregid, (unsigned real, unsigned id), (real, id))                                                    \
    X(setresgid, (unsigned real, unsigned id, unsigned saved), (real, id, saved))                            \
    X(setfsgid, (unsigned id), (id))                                                                         \
    X(setgroups, (unsigned long count, const unsigned *groups), (count, groups))                             \
    X(initgroups, (const char *user, unsigned group), (user, group))                                         \
    X(capset, (void *header, const void *data), (header, data))                                              \
    X(setrlimit, (int what, const void *limit), (what, limit))                                               \
    X(setrlimit64, (int what, const void *limit), (what, limit))                                             \
    X(prlimit, (int pid, int what, const void *limit, void *before), (pid, what, limit, before))             \
    X(prlimit64, (int pid, int what, const void *limit, void *before), (pid, what, limit, before))

typedef int sandbox_prctl_t(int what, ...);
// With six arguments always, as libc's own reads them: some may be what happens to lie there.
typedef long sandbox_syscall_t(long number, long a, long b, long c, long d, long e, long f);

#define DECLARE(name, parameters, arguments) int name parameters;
CALLS(DECLARE)
int prctl(int what, ...);
sandbox_syscall_t syscall;

static struct {
#define FIELD(name, parameters, arguments) __typeof__(name) *name;
    CALLS(FIELD)
    sandbox_prctl_t *prctl;
    sandbox_syscall_t *syscall;
} sandbox_real;

static void sandbox_find(void) {
#define FIND(name, parameters, arguments) *(void **)&sandbox_real.name = qy_os_symbol_next(#name);
    CALLS(FIND)
    *(void **)&sandbox_real.prctl = qy_os_symbol_next("prctl");
    *(void **)&sandbox_real.syscall = qy_os_symbol_next("syscall");
}

// In the constructor: a child of vfork, which may call them, had better not look them up.
__attribute__((constructor(102))) static void sandbox_begins(void) { sandbox_find(); }

static int sandbox_missing(void) {
    errno = ENOSYS;
    return -1;
}

// What lies in the modules' files is asked for now too: a stack that is told later needs it.
static void sandbox_comes(void) {
    qy_check_report_keep();
    if (qy_check_is_up()) qy_check_frames_look();
}

#define DEFINE(name, parameters, arguments)                                         \
    EXPORT int name parameters {                                                    \
        if (QY_UNLIKELY(!sandbox_real.name)) sandbox_find();                        \
        sandbox_comes();                                                            \
        return sandbox_real.name ? sandbox_real.name arguments : sandbox_missing(); \
    }
CALLS(DEFINE)

// Before a filter. It may forbid all that was to be done later; and a thread more, of which the program knows nothing,
// can make the kernel refuse it.
static bool filter_comes(void) {
    qy_helper_never();
    sandbox_comes();
    return qy_check_report_filtered(true);
}
// After it. Programs try what the kernel knows by calls that fail.
static long filter_came(long answer, bool was) {
    if (answer < 0 && !was) qy_check_report_filtered(false);
    return answer;
}

EXPORT int prctl(int what, ...) {
    if (QY_UNLIKELY(!sandbox_real.prctl)) sandbox_find();
    if (QY_UNLIKELY(!sandbox_real.prctl)) return sandbox_missing();
    unsigned long of[4];
    va_list list;
    va_start(list, what);
    for (unsigned i = 0; i < 4; i++) of[i] = va_arg(list, unsigned long);
    va_end(list);
    qy_os_confines_t kind = qy_os_prctl_confines(what);
    if (kind == QY_CONFINES_PATHS) sandbox_comes();
    if (kind != QY_CONFINES_CALLS) return sandbox_real.prctl(what, of[0], of[1], of[2], of[3]);
    bool was = filter_comes();
    return (int)filter_came(sandbox_real.prctl(what, of[0], of[1], of[2], of[3]), was);
}

// libseccomp and others call the kernel by this. It has no frame here at -O2, so a child that shares the stack of its
// parent may come out of it.
EXPORT long syscall(long number, long a, long b, long c, long d, long e, long f) {
    if (QY_UNLIKELY(!sandbox_real.syscall)) sandbox_find();
    if (QY_UNLIKELY(!sandbox_real.syscall)) return sandbox_missing();
    qy_os_confines_t kind = qy_os_call_confines(number, a);
    if (QY_UNLIKELY(kind == QY_CONFINES_CALLS)) {
        bool was = filter_comes();
        return filter_came(sandbox_real.syscall(number, a, b, c, d, e, f), was);
    }
    if (QY_UNLIKELY(kind == QY_CONFINES_PATHS)) sandbox_comes();
    return sandbox_real.syscall(number, a, b, c, d, e, f);
}
