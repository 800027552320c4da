// SPDX-License-Identifier: MIT
// clock.h: the two clocks: nanoseconds for what takes long, ticks of the processor for single calls.
#ifndef QUARRY_REPLAY_CLOCK_H
#define QUARRY_REPLAY_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t qy_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// The fences keep the call between the two readings: without them the processor begins it earlier or reads
// the end before it is done.
#if defined(__x86_64__)
#include <x86intrin.h>
#define QY_CLOCK_NAME "tsc"
static inline uint64_t qy_tick_begin(void) {
    _mm_lfence();
    uint64_t ticks = __rdtsc();
    _mm_lfence();
    return ticks;
}
static inline uint64_t qy_tick_end(void) {
    unsigned cpu;
    uint64_t ticks = __rdtscp(&cpu);
    _mm_lfence();
    return ticks;
}
static inline void qy_pause(void) { _mm_pause(); }
#elif defined(__aarch64__)
#define QY_CLOCK_NAME "counter"
static inline uint64_t qy_tick_begin(void) {
    uint64_t ticks;
    __asm__ volatile("isb; mrs %0, cntvct_el0; isb"
                     : "=r"(ticks)
                     :
                     : "memory");
    return ticks;
}
static inline uint64_t qy_tick_end(void) { return qy_tick_begin(); }
static inline void qy_pause(void) { __asm__ volatile("yield"); }
#else
#define QY_CLOCK_NAME "monotonic"
static inline uint64_t qy_tick_begin(void) { return qy_now_ns(); }
static inline uint64_t qy_tick_end(void) { return qy_now_ns(); }
static inline void qy_pause(void) {}
#endif

#endif
