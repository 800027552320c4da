// SPDX-License-Identifier: MIT
// peek.c: memory that may not be there.
#include <string.h>
#include <sys/auxv.h>
#include <sys/uio.h>

#include "base/compiler.h"
#include "os/os.h"
#include "os/syscall.h"

#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define RUNNING_ON_VALGRIND 0
#endif

// For valgrind alone, which deals with masks itself.
static long peek_copy(uintptr_t from, void *to, size_t bytes) {
    struct iovec target = {to, bytes}, source = {(void *)from, bytes};
    return qy_syscall(SYS_process_vm_readv, qy_os_process_id(), &target, 1, &source, 1, 0);
}

// The kernel reads the new mask before it looks at what is to be done with it: EFAULT says that the word cannot
// be read, EINVAL that it can, and nothing else happens. No filter of system calls forbids this one.
bool qy_os_readable(const void *addr) {
    const int no_such_way = 99;
    const uintptr_t word = (uintptr_t)addr & ~(uintptr_t)7;
    uint64_t value;
    if (RUNNING_ON_VALGRIND) return peek_copy(word, &value, sizeof value) == sizeof value;
    return word != 0 && qy_syscall(SYS_rt_sigprocmask, no_such_way, word, 0, 8) == -EINVAL;
}

// The same call without a new mask: the kernel writes the old one. So a new page is had by one fault, where it takes
// two to read it first and write to it later.
bool qy_os_writable_new(void *page) {
    if (RUNNING_ON_VALGRIND) return qy_os_readable(page);
    if (qy_syscall(SYS_rt_sigprocmask, 0, 0, page, 8) != 0) return false;
    __atomic_store_n((uint64_t *)page, 0, __ATOMIC_RELAXED);
    return true;
}

// Not by process_vm_readv: a program may set a filter at any time that kills for that call, as those of chronyd and
// sshd do. So each page is asked for before it is read: another thread that unmaps it in between is the fault that
// remains. (No sanitizer looks at these loads: it would look up memory of its own for them.)
QY_NOINLINE __attribute__((no_sanitize("address", "thread"))) bool qy_os_peek(
    const void *source, void *buf, size_t bytes) {
    const size_t page = 4096;  // the smallest there is
    const char *from = source;
    char *to = buf;
    if ((uintptr_t)from + bytes < bytes) return false;
    if (RUNNING_ON_VALGRIND) return peek_copy((uintptr_t)from, buf, bytes) == (long)bytes;
    while (bytes) {
        size_t part = page - ((uintptr_t)from & (page - 1));
        if (part > bytes) part = bytes;
        if (!qy_os_readable(from)) return false;
        for (size_t i = 0; i < part; i++) to[i] = ((const volatile char *)from)[i];
        from += part;
        to += part;
        bytes -= part;
    }
    return true;
}

// The kernel puts these bytes between the program's arguments, which lie below, and their text.
uintptr_t qy_os_main_stack_top(void) { return qy_os_auxv(AT_RANDOM) & ~(uintptr_t)15; }
