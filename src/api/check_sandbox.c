// SPDX-License-Identifier: MIT
// check_sandbox.c: calls after which the path of the reports may lead nowhere, or may not be opened; in
// libquarry-check only.
//
// A program that lists its descriptors shall find its own, so the file is closed between lines (check/report.c). These
// calls open it before they do what they are for. Who makes a sandbox by system calls of its own mostly forbids new
// privileges before, by prctl.
#include <errno.h>
#include <stdarg.h>

#include "base/compiler.h"
#include "check/report.h"
#include "os/loaded.h"

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

#define PR_SET_SECCOMP 22
#define PR_SET_NO_NEW_PRIVS 38
typedef int sandbox_prctl_t(int what, ...);

#define DECLARE(name, parameters, arguments) int name parameters;
CALLS(DECLARE)
int prctl(int what, ...);

static struct {
#define FIELD(name, parameters, arguments) __typeof__(name) *name;
    CALLS(FIELD)
    sandbox_prctl_t *prctl;
} sandbox_real;

static void sandbox_find(void) {
#define FIND(name, parameters, arguments) *(void **)&sandbox_real.name = qy_os_symbol_next(#name);
    CALLS(FIND)
    *(void **)&sandbox_real.prctl = qy_os_symbol_next("prctl");
}

// In the constructor: a child of vfork, which may call them, had better not look them up.
__attribute__((constructor(102))) static void sandbox_begins(void) { sandbox_find(); }

static int sandbox_missing(void) {
    errno = ENOSYS;
    return -1;
}

#define DEFINE(name, parameters, arguments)                                         \
    EXPORT int name parameters {                                                    \
        if (QY_UNLIKELY(!sandbox_real.name)) sandbox_find();                        \
        qy_check_report_keep();                                                     \
        return sandbox_real.name ? sandbox_real.name arguments : sandbox_missing(); \
    }
CALLS(DEFINE)

EXPORT int prctl(int what, ...) {
    if (QY_UNLIKELY(!sandbox_real.prctl)) sandbox_find();
    unsigned long of[4];
    va_list list;
    va_start(list, what);
    for (unsigned i = 0; i < 4; i++) of[i] = va_arg(list, unsigned long);
    va_end(list);
    if (what == PR_SET_SECCOMP || what == PR_SET_NO_NEW_PRIVS) qy_check_report_keep();
    return sandbox_real.prctl ? sandbox_real.prctl(what, of[0], of[1], of[2], of[3]) : sandbox_missing();
}
