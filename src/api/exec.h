// SPDX-License-Identifier: MIT
// exec.h: the calls by which a process runs another program, interposed. It defines exported functions, so one file of
// a library includes it.
#ifndef QY_API_EXEC_H
#define QY_API_EXEC_H

#include <errno.h>
#include <stdarg.h>
#include <sys/types.h>

#include "base/compiler.h"
#include "base/num.h"
#include "os/os.h"
#include "os/process.h"

#define EXEC_EXPORT __attribute__((visibility("default")))

// Defined by the file that includes this one:
//   EXEC_BEGINS(program)  what the library does before the call; true: it wants to know if that fails. It evaluates
//                         the program's name if it needs that
//   EXEC_FAILED()         it has
//   EXEC_SYMBOL(name)     the next definition of a function

typedef char *const list_t[];

int execve(const char *path, list_t argv, list_t envp);
int execv(const char *path, list_t argv);
int execvp(const char *file, list_t argv);
int execvpe(const char *file, list_t argv, list_t envp);
int fexecve(int fd, list_t argv, list_t envp);
int execveat(int fd, const char *path, list_t argv, list_t envp, int flags);
int execl(const char *path, const char *arg, ...);
int execlp(const char *file, const char *arg, ...);
int execle(const char *path, const char *arg, ...);

// Found before the first call, since it may come in the child of a fork.
static struct {
    int (*execve)(const char *path, list_t argv, list_t envp);
    int (*execv)(const char *path, list_t argv);
    int (*execvp)(const char *file, list_t argv);
    int (*execvpe)(const char *file, list_t argv, list_t envp);
    int (*fexecve)(int fd, list_t argv, list_t envp);
    int (*execveat)(int fd, const char *path, list_t argv, list_t envp, int flags);
} exec_real;

static int no_execveat(int fd, const char *path, list_t argv, list_t envp, int flags) {
    (void)fd, (void)path, (void)argv, (void)envp, (void)flags;
    errno = ENOSYS;
    return -1;
}

#define FIND(function) *(void **)&exec_real.function = EXEC_SYMBOL(#function)

__attribute__((constructor)) static void exec_find_real(void) {
    FIND(execve);
    FIND(execv);
    FIND(execvp);
    FIND(execvpe);
    FIND(fexecve);
    FIND(execveat);
    if (!exec_real.execveat) exec_real.execveat = no_execveat;  // an older C library
}

// The list may be anywhere, and then the call fails.
static const char *exec_first_of(list_t argv) {
    const char *first;
    return qy_os_peek(argv, &first, sizeof first) && first ? first : "";
}

#define EXEC_NAME_BYTES 4096
typedef struct exec_name {
    char text[EXEC_NAME_BYTES];
} exec_name_t;

// The program of a call that names a descriptor: its own file, or a path that begins there. What cannot be read is the
// kernel's to refuse. AT_FDCWD is no descriptor.
QY_INLINE const char *exec_name_at(int fd, const char *path, list_t argv, exec_name_t *name) {
    char c = 0;
    if (!qy_os_peek(path, &c, 1) || c == '/') return path;
    size_t n = qy_os_descriptor_path(fd, name->text, EXEC_NAME_BYTES);
    if (!n) return c ? path : exec_first_of(argv);
    if (c) name->text[n++] = '/';
    for (size_t i = 0; n + 1 < EXEC_NAME_BYTES && qy_os_peek(path + i, &c, 1) && c; i++) name->text[n++] = c;
    name->text[qy_min(n, EXEC_NAME_BYTES - 1)] = '\0';
    return name->text;
}

// `call` returns only if it has failed.
#define RUN(name, function, call)                           \
    if (QY_UNLIKELY(!exec_real.function)) exec_find_real(); \
    bool told = EXEC_BEGINS(name);                          \
    int r = exec_real.call;                                 \
    if (told) EXEC_FAILED();                                \
    return r

EXEC_EXPORT int execve(const char *path, list_t argv, list_t envp) { RUN(path, execve, execve(path, argv, envp)); }
EXEC_EXPORT int execv(const char *path, list_t argv) { RUN(path, execv, execv(path, argv)); }
EXEC_EXPORT int execvp(const char *file, list_t argv) { RUN(file, execvp, execvp(file, argv)); }
EXEC_EXPORT int execvpe(const char *file, list_t argv, list_t envp) { RUN(file, execvpe, execvpe(file, argv, envp)); }
EXEC_EXPORT int fexecve(int fd, list_t argv, list_t envp) {
    RUN(exec_name_at(fd, "", argv, &(exec_name_t){""}), fexecve, fexecve(fd, argv, envp));
}
EXEC_EXPORT int execveat(int fd, const char *path, list_t argv, list_t envp, int flags) {
    RUN(exec_name_at(fd, path, argv, &(exec_name_t){""}), execveat, execveat(fd, path, argv, envp, flags));
}

// The arguments that stand in the call, as a list on the stack: in the child of vfork nothing else may be changed.
#define LIST(argv, arg, ap)                                     \
    size_t count = 1;                                           \
    va_start(ap, arg);                                          \
    if (arg)                                                    \
        while (va_arg(ap, char *)) count++;                     \
    va_end(ap);                                                 \
    char **argv = __builtin_alloca((count + 1) * sizeof *argv); \
    va_start(ap, arg);                                          \
    argv[0] = (char *)(uintptr_t)arg;                           \
    for (size_t i = 1; argv[i - 1] && i <= count; i++) argv[i] = va_arg(ap, char *)

EXEC_EXPORT int execl(const char *path, const char *arg, ...) {
    va_list ap;
    LIST(argv, arg, ap);
    va_end(ap);
    return execv(path, argv);
}

EXEC_EXPORT int execlp(const char *file, const char *arg, ...) {
    va_list ap;
    LIST(argv, arg, ap);
    va_end(ap);
    return execvp(file, argv);
}

EXEC_EXPORT int execle(const char *path, const char *arg, ...) {
    va_list ap;
    LIST(argv, arg, ap);
    char *const *envp = va_arg(ap, char *const *);
    va_end(ap);
    return execve(path, argv, (char **)(uintptr_t)envp);
}

#endif
