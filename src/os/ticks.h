// SPDX-License-Identifier: MIT
// ticks.h: the cheapest clock that is the same on all processors, for what is timed too often to ask the kernel.
//
// The processor's own counter where the kernel itself trusts it, else the monotonic clock. A tick is the counter
// shifted right by a constant, so that it lasts about 4 ns: times of events that follow each other stay small numbers.
// Order across threads: it is read after all earlier loads of the caller, and before any later store of the caller can
// be seen by others. Threads: all functions, after init.
#ifndef QY_OS_TICKS_H
#define QY_OS_TICKS_H

#include "os/os.h"

typedef enum qy_ticks_source {
    QY_TICKS_MONOTONIC,  // CLOCK_MONOTONIC, read without entering the kernel
    QY_TICKS_TSC,        // x86-64
    QY_TICKS_COUNTER,    // aarch64
} qy_ticks_source_t;

typedef struct qy_ticks {
    qy_ticks_source_t source;
    unsigned shift;
    uint64_t per_second;  // estimated in 50 us, good to a few parts in a thousand
} qy_ticks_t;

extern qy_ticks_t qy_ticks;  // before init: the monotonic clock
#if defined(QY_CFG_FAKE) && QY_CFG_FAKE
extern unsigned qy_os_faked_ticks_shift;  // fake.h
#endif

// Choose the source and measure it: 50 us, and a file of /sys. Once, before other threads ask for ticks.
void qy_os_ticks_init(void);
const char *qy_os_ticks_name(void);  // "tsc", "monotonic", "counter"

// Ticks and the monotonic clock, read at one moment as nearly as can be.
void qy_os_ticks_pair(uint64_t *ret_ticks, uint64_t *ret_ns);

#define QY_TICKS_NS_SHIFT 2

// `ordered` false: it is not waited for earlier loads, which takes as long as these do. For a process in which no other
// thread can have stored what was loaded; its times may go back by as much.
static inline uint64_t qy_os_ticks_if(bool ordered) {
#if defined(__x86_64__)
    // rdtsc may be executed before the loads that precede it have an answer: then a block that another thread has just
    // handed over is freed before it was allocated. rdtscp waits for them.
    unsigned cpu;
    if (__builtin_expect(qy_ticks.source == QY_TICKS_TSC, 1))
        return (ordered ? __builtin_ia32_rdtscp(&cpu) : __builtin_ia32_rdtsc()) >> qy_ticks.shift;
#elif defined(__aarch64__)
    if (__builtin_expect(qy_ticks.source == QY_TICKS_COUNTER, 1)) {
        uint64_t count;
        __asm__ volatile("isb\n mrs %0, cntvct_el0"
                         : "=r"(count)
                         :
                         : "memory");
        return count >> qy_ticks.shift;
    }
#endif
    return qy_os_now_ns() >> QY_TICKS_NS_SHIFT;
}
static inline uint64_t qy_os_ticks(void) { return qy_os_ticks_if(true); }

#endif
