// SPDX-License-Identifier: MIT
// giveback.h: giving memory back where others can see it.
//
// Libraries for RDMA keep physical addresses of what a program sends. They learn that memory goes away by changing
// libc's munmap, madvise, mremap and mmap: the functions' code, the entries in modules' tables that lead to them, or
// the names. Tracers and uprobes look at the same functions. So what takes pages away from addresses that a program may
// have seen calls libc's functions by their names. A fresh mapping, or the removal of one that nobody was given, does
// not.
//
// A bare thread cannot run libc's functions, nor what others put in their place: it has no thread-local storage. It
// makes the system calls itself, and gives nothing back where qy_os_is_watched().
//
// Answers are the kernel's: -4095..-1 is -errno. errno stays. Threads: all.
#ifndef QY_OS_GIVEBACK_H
#define QY_OS_GIVEBACK_H

#include <stddef.h>

long qy_os_seen_munmap(void *addr, size_t bytes);
long qy_os_seen_madvise(void *addr, size_t bytes, int advice);
long qy_os_seen_mremap(void *from, size_t old_bytes, size_t new_bytes, int flags, void *to);
long qy_os_seen_mmap(void *addr, size_t bytes, int prot, int flags, int fd, long offset);

// From qy_os_spawn: a bare thread will run on this stack. One range is remembered; none but bare threads ever run in
// it.
void qy_os_bare_thread_on(const void *stack, size_t bytes);

#endif
