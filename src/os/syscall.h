// SPDX-License-Identifier: MIT
// syscall.h: a system call as an expression: qy_syscall(SYS_x, arguments...) is the kernel's answer,
// -4095..-1 being -errno. On x86-64 and aarch64 no libc is involved, so errno (and the thread-local
// storage it lives in) is not touched. Elsewhere libc's syscall() is called and errno put back.
#ifndef QY_OS_SYSCALL_H
#define QY_OS_SYSCALL_H

#include <errno.h>
#include <stdbool.h>
#include <sys/syscall.h>

#if defined(__x86_64__) && defined(__LP64__)
static inline long qy_syscall6(long n, long a, long b, long c, long d, long e, long f) {
    long ret;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return ret;
}
#elif defined(__aarch64__) && defined(__LP64__)
static inline long qy_syscall6(long n, long a, long b, long c, long d, long e, long f) {
    register long x8 __asm__("x8") = n;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
}
#else
#include <unistd.h>
static inline long qy_syscall6(long n, long a, long b, long c, long d, long e, long f) {
    int saved = errno;
    long ret = syscall(n, a, b, c, d, e, f);
    if (ret == -1) ret = -errno;
    errno = saved;
    return ret;
}
#endif

// Missing arguments are zeros, so that no register carries garbage into a call that grows a flag.
#define qy_syscall(...) qy_syscall_pad(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
#define qy_syscall_pad(n, a, b, c, d, e, f, ...) \
    qy_syscall6((long)(n), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

static inline bool qy_syscall_failed(long ret) { return (unsigned long)ret >= -4095ul; }

#endif
