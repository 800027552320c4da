// SPDX-License-Identifier: MIT
// alone.h: counting and taking turns, cheaply while the process has one thread.
//
// An instruction that locks the bus costs some 20 cycles, and a malloc and its free had twelve of them. While there is
// one thread, the same instruction without the lock does: nobody but a signal handler can come between, and that comes
// between two instructions. glibc knows whether there is one thread (its own malloc goes by it too); elsewhere there
// may always be others. The heap's helper thread, of which glibc knows nothing, touches nothing of check.
#ifndef QY_CHECK_ALONE_H
#define QY_CHECK_ALONE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

#if defined(__x86_64__) && !QY_TSAN
extern __attribute__((weak)) char qy_check_libc_is_single __asm__("__libc_single_threaded");
QY_INLINE bool qy_check_is_alone(void) { return &qy_check_libc_is_single && qy_check_libc_is_single; }

// More or less of it.
QY_INLINE void qy_check_count(_Atomic int64_t *sum, int64_t n) {
    if (QY_UNLIKELY(!qy_check_is_alone())) atomic_fetch_add_explicit(sum, n, memory_order_relaxed);
    else __asm__ volatile("addq %1, %0"
                          : "+m"(*sum)
                          : "er"(n)
                          : "cc");
}
// The same of a sum that only the calling thread changes: one instruction, so that a signal handler does no harm.
QY_INLINE void qy_check_count_own(_Atomic int64_t *sum, int64_t n) {
    __asm__ volatile("addq %1, %0"
                     : "+m"(*sum)
                     : "er"(n)
                     : "cc");
}
// What it was before.
QY_INLINE uint32_t qy_check_count_up(_Atomic uint32_t *sum, uint32_t n) {
    if (QY_UNLIKELY(!qy_check_is_alone())) return atomic_fetch_add_explicit(sum, n, memory_order_acq_rel);
    __asm__ volatile("xaddl %0, %1"
                     : "+r"(n), "+m"(*sum)
                     :
                     : "cc", "memory");
    return n;
}
// *before was there, and is `after` now; else *before is what is there.
QY_INLINE bool qy_check_exchange(_Atomic uint64_t *word, uint64_t *before, uint64_t after) {
    if (QY_UNLIKELY(!qy_check_is_alone()))
        return atomic_compare_exchange_strong_explicit(
            word, before, after, memory_order_acq_rel, memory_order_relaxed);
    bool done;
    __asm__ volatile("cmpxchgq %3, %2"
                     : "=@ccz"(done), "+a"(*before), "+m"(*word)
                     : "r"(after)
                     : "memory");
    return done;
}
#else
QY_INLINE bool qy_check_is_alone(void) { return false; }
QY_INLINE void qy_check_count(_Atomic int64_t *sum, int64_t n) {
    atomic_fetch_add_explicit(sum, n, memory_order_relaxed);
}
QY_INLINE void qy_check_count_own(_Atomic int64_t *sum, int64_t n) { qy_check_count(sum, n); }
QY_INLINE uint32_t qy_check_count_up(_Atomic uint32_t *sum, uint32_t n) {
    return atomic_fetch_add_explicit(sum, n, memory_order_acq_rel);
}
QY_INLINE bool qy_check_exchange(_Atomic uint64_t *word, uint64_t *before, uint64_t after) {
    return atomic_compare_exchange_strong_explicit(word, before, after, memory_order_acq_rel, memory_order_relaxed);
}
#endif

#endif
