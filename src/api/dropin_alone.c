// SPDX-License-Identifier: MIT
// dropin_alone.c: libc's calls that the kernel refuses to a process with more than one thread; in libquarry-malloc
// only. The heap's own thread ends before them. Each is libc's whole: a system call and errno.
#include <errno.h>

#include "heap/fork.h"
#include "os/process.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int unshare(int flags);
EXPORT int setns(int fd, int type);

static int answer(long result) {
    if (result >= 0) return (int)result;
    errno = (int)-result;
    return -1;
}

int unshare(int flags) {
    qy_heap_be_alone();
    return answer(qy_os_leave_namespaces(flags));
}

int setns(int fd, int type) {
    qy_heap_be_alone();
    return answer(qy_os_join_namespace(fd, type));
}
