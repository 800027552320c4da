// SPDX-License-Identifier: MIT
// diag.h: what the library has to say, without allocating, without stdio, without locale: works
// from a signal handler, on a small stack, before and after libc's own life.
#ifndef QY_RT_DIAG_H
#define QY_RT_DIAG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A small formatter: %s %d %u %x %p %z (size_t) %l (uint64_t) %%. Always NUL-terminates; returns the length that
// was written. Never more than bytes - 1 characters.
size_t qy_format(char *buf, size_t bytes, const char *format, ...);

// The faults. Each has a stable word that stands in the message, in docs/errors.md and in a test.
typedef enum qy_fault {
    QY_FAULT_DOUBLE_FREE,    // "double free"
    QY_FAULT_INVALID_FREE,   // "invalid free": not memory of this heap
    QY_FAULT_INTERIOR_FREE,  // "free of an interior pointer"
    QY_FAULT_CORRUPT_LINK,   // "corrupted free block": written to after it was freed
    QY_FAULT_CORRUPT_META,   // "corrupted metadata"
    QY_FAULT_WRONG_HEAP,     // "block of another heap"
} qy_fault_t;

// One line: "quarry: <fault>: <pointer>, <detail>\n" on fd 2, then abort with SIGABRT at its
// default. `detail` may be NULL.
_Noreturn __attribute__((cold, noinline)) void qy_fatal(qy_fault_t fault, const void *ptr, const char *detail, ...);

// "quarry: warning: ..." on fd 2. For options and environment; never on an allocation path.
__attribute__((cold, noinline)) void qy_warn(const char *format, ...);

// Assertions: on with QY_CFG_CHECK >= 1 (dev), whole-structure walks with >= 2. A failed one says
// "quarry: assertion failed: expr, file:line" and aborts.
#ifndef QY_CFG_CHECK
#define QY_CFG_CHECK 0
#endif
_Noreturn __attribute__((cold, noinline)) void qy_assert_failed(const char *expr, const char *file, int line);
#define qy_assert(expr) ((QY_CFG_CHECK >= 1 && !(expr)) ? qy_assert_failed(#expr, __FILE__, __LINE__) : (void)0)
#define qy_assert_slow(expr) ((QY_CFG_CHECK >= 2 && !(expr)) ? qy_assert_failed(#expr, __FILE__, __LINE__) : (void)0)

#endif
