// SPDX-License-Identifier: MIT
// process.h: what a process can find out about itself, and what its children inherit; for the recorder.
//
// Nothing here allocates or touches errno. Texts are cut to fit and NUL-terminated; functions that return size_t return
// the length that was written, 0 on failure. Threads: all functions.
#ifndef QY_OS_PROCESS_H
#define QY_OS_PROCESS_H

#include "os/os.h"

int qy_os_parent_id(void);
uint64_t qy_os_now_unix_ns(void);  // the time of day

size_t qy_os_program_path(char *buf, size_t bytes);
// What the kernel calls the file of a descriptor.
size_t qy_os_descriptor_path(int fd, char *buf, size_t bytes);
// The arguments, a NUL after each.
size_t qy_os_command_line(char *buf, size_t bytes);

// The name of the calling thread (at most 15 characters).
size_t qy_os_thread_name(char *buf, size_t bytes);
// That of another thread of this process, or of the calling one.
size_t qy_os_name_of_thread(int thread_id, char *buf, size_t bytes);
// Is there a thread of this process with this number?
bool qy_os_thread_lives(int thread_id);

// Resident bytes of this process, of its own, of files and of shared memory, the most there were of all together, and
// the processor time of all its threads. Costs some microseconds.
typedef struct qy_os_usage {
    uint64_t anonymous, file, shared, peak, cpu_ns;
    bool no_huge_pages;  // the process has told the kernel that it wants none, whatever advice its memory has
} qy_os_usage_t;
bool qy_os_usage(qy_os_usage_t *ret);
uint64_t qy_os_cpu_ns(void);  // the last of these alone: a system call
// Add the bytes of a range that this process has in its page tables: of its own, and of files and shared memory.
// Nothing where the kernel does not tell.
void qy_os_mapped(uintptr_t begin, size_t bytes, uint64_t *sum_anonymous, uint64_t *sum_file);
// Bytes of a range whose pages are in memory; of long ranges a sample is taken and projected.
size_t qy_os_resident(const void *addr, size_t bytes);
// Which of these pages are in memory: bit 0 of each byte. False: the kernel does not tell.
bool qy_os_present(uintptr_t first, size_t pages, unsigned char *ret_present);

// A child made by fork sees zeros in this range of anonymous memory. False: the kernel can't.
bool qy_os_wipe_on_fork(void *addr, size_t bytes);

// After qy_os_barrier() has returned true, every other running thread of the process has passed a full memory
// barrier. Costs microseconds, and nothing to those who are not interrupted. `prepare` once, best while there is one
// thread.
void qy_os_barrier_prepare(void);
bool qy_os_barrier(void);

// unshare and setns; less than 0: minus errno.
long qy_os_leave_namespaces(int flags);
long qy_os_join_namespace(int fd, int type);

// Does the process know its environment yet? False before the C library's start.
bool qy_os_environment_known(void);
// Put `entry` ("NAME=value", not copied) in the place of the variable of that name, if there is one.
void qy_os_replace_env(const char *name, char *entry);

#endif
