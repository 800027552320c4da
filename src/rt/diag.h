// SPDX-License-Identifier: MIT
// diag.h: what the library has to say, without allocating, without stdio, without locale: works
// from a signal handler, on a small stack, before and after libc's own life.
#ifndef QY_RT_DIAG_H
#define QY_RT_DIAG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A small formatter: %s %d %u %x %p %z (size_t) %l (uint64_t) %%. %S is the "s" of a plural, as in "%z byte%S":
// nothing where the last %u, %z or %l was 1. Always NUL-terminates; returns the length that was written. Never
// more than bytes - 1 characters.
size_t qy_format(char *buf, size_t bytes, const char *format, ...);

// The faults. Each has a stable word that stands in the message, in docs/errors.md and in a test.
typedef enum qy_fault {
    QY_FAULT_DOUBLE_FREE,    // "double free"
    QY_FAULT_INVALID_FREE,   // "invalid free": not memory of this heap
    QY_FAULT_INTERIOR_FREE,  // "free of an interior pointer"
    QY_FAULT_CORRUPT_LINK,   // "corrupted free block": written to while it was free
    QY_FAULT_CORRUPT_META,   // "corrupted metadata"
    QY_FAULT_WRONG_HEAP,     // "block of another heap"
    QY_FAULT_CALL_WITHIN,    // "call within a call": a thread would wait for itself
    QY_FAULT_WRONG_SIZE,     // "wrong size": freed as more than the block has
    QY_FAULT_WRONG_ALIGN,    // "wrong alignment": freed as aligned to what it is not
    // Of pools:
    QY_FAULT_DEAD_POOL,       // "use of a destroyed pool"
    QY_FAULT_POOL_IN_USE,     // "destroyed pool is a parent"
    QY_FAULT_NO_MEMORY,       // "out of memory": pools made with QUARRY_POOL_ABORT
    QY_FAULT_DAMAGED_POOL,    // "damaged pool": its own records contradict each other
    QY_FAULT_CANARY,          // "overwritten canary": written before or behind a block
    QY_FAULT_QUARANTINE,      // "write after free": to a block in quarantine
    QY_FAULT_UNBALANCED,      // "unbalanced frames": popped out of order, or not at all
    QY_FAULT_NO_FRAME,        // "no open frame"
    QY_FAULT_SEALED_FRAME,    // "sealed frame": allocation from it, or sealed twice
    QY_FAULT_WRONG_FRAME,     // "block of another frame": resize of an outer frame's block
    QY_FAULT_DOUBLE_RELEASE,  // "double release"
    QY_FAULT_STALE_FRAME,     // "stale frame": a cookie that names no frame of this pool
    QY_FAULT_WRONG_POOL,      // "block of another pool"
    QY_FAULT_WRONG_THREAD,    // "wrong thread": of a pool that belongs to one
} qy_fault_t;

// One line: "quarry: <fault>: <pointer>, <detail>\n" on fd 2, then abort with SIGABRT at its
// default. `detail` may be NULL.
_Noreturn __attribute__((cold, noinline)) void qy_fatal(qy_fault_t fault, const void *ptr, const char *detail, ...);

// What is called before that line, with signals blocked: checking has blocks and stacks to report. `detail`: as it will
// stand in the line, NULL: none. Never called within itself. NULL: nothing.
typedef void qy_fatal_watch_t(qy_fault_t fault, const void *ptr, const char *detail);
void qy_fatal_watch(qy_fatal_watch_t *watch);

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

// A check of a whole structure: NULL, or what is wrong with it. It runs behind one transition of this many, so that
// tests end.
#define QY_SOUND_EACH 16u
bool qy_sound_is_due(void);
void qy_sound_must_be(const char *wrong, const char *file, int line);
#define qy_assert_sound(check) \
    ((QY_CFG_CHECK >= 2 && qy_sound_is_due()) ? qy_sound_must_be(check, __FILE__, __LINE__) : (void)0)

#endif
