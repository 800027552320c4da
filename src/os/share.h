// SPDX-License-Identifier: MIT
// share.h: memory of this process that others of the same user can find and read, and that never outlives it.
//
// It is a System V segment that is marked for removal as soon as it is attached. So it has no name that could be left
// behind, no descriptor that the program could close, and no file system that could be full or missing; the kernel removes it with
// the last mapping: at exit, at exec, after kill -9. Who wants to read it finds it by the creator's process id in the kernel's list of
// segments and attaches it by number, for which it must be allowed to open a file of mode 0600 of this user, and no more.
//
// Threads: all functions. None allocates or touches errno.
#ifndef QY_OS_SHARE_H
#define QY_OS_SHARE_H

#include "os/os.h"

// The kernel has a table of segments for all users (4,096 by default), and other programs depend on theirs: of it we take no place
// beyond this one.
#define QY_SHARE_PLACES 1024

// `bytes` of zeros, shared; children made by fork do not have them, however they are made. NULL: denied, no room for it, or a kernel
// without. About six system calls' time, in all.
void *qy_os_share(size_t bytes);
// It goes. `addr` is what qy_os_share returned.
void qy_os_unshare(void *addr);

#endif
