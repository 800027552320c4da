// SPDX-License-Identifier: MIT
// measure.c: what the process used, and what a tick is worth
#include <sys/resource.h>

#include "clock.h"
#include "replay.h"

double qy_ns_per_tick = 1;
uint64_t qy_timer_ticks;

static uint64_t start_ns, start_ticks;

void qy_read_usage(qy_usage_t *usage) {
    struct rusage raw;
    getrusage(RUSAGE_SELF, &raw);
    *usage = (qy_usage_t){
        .ns = qy_now_ns(),
        .user_ns = (uint64_t)raw.ru_utime.tv_sec * 1000000000u + (uint64_t)raw.ru_utime.tv_usec * 1000u,
        .system_ns = (uint64_t)raw.ru_stime.tv_sec * 1000000000u + (uint64_t)raw.ru_stime.tv_usec * 1000u,
        .minor_faults = (uint64_t)raw.ru_minflt,
        .major_faults = (uint64_t)raw.ru_majflt,
        .voluntary = (uint64_t)raw.ru_nvcsw,
        .involuntary = (uint64_t)raw.ru_nivcsw,
    };
}

// The two readings around nothing: the median of many, which the first ones and interrupts do not move.
static uint64_t empty_pair(void) {
    enum { TIMES = 20001,
        MOST = 4096 };
    uint32_t *seen = qy_own(MOST, sizeof *seen);
    for (int i = 0; i < TIMES; i++) {
        uint64_t begin = qy_tick_begin(), ticks = qy_tick_end() - begin;
        seen[ticks < MOST ? ticks : MOST - 1]++;
    }
    uint64_t median = 0;
    for (uint32_t below = seen[0]; below <= TIMES / 2 && median < MOST - 1;) below += seen[++median];
    qy_disown(seen, MOST, sizeof *seen);
    return median;
}

void qy_calibrate_begin(void) {
    qy_timer_ticks = empty_pair();
    start_ns = qy_now_ns();
    start_ticks = qy_tick_begin();
}

void qy_calibrate_end(void) {
    enum { LEAST = 10000000 };
    if (!qy_config.timed) return;  // nothing is measured in ticks
    while (qy_now_ns() - start_ns < LEAST) qy_pause();
    uint64_t ticks = qy_tick_begin() - start_ticks, ns = qy_now_ns() - start_ns;
    if (ticks) qy_ns_per_tick = (double)ns / (double)ticks;
}

// The middle of the bucket in which the asked one lies; the largest is known exactly.
double qy_percentile_ns(const qy_histogram_t *histogram, double part) {
    uint64_t wanted = (uint64_t)((double)histogram->count * part), seen = 0;
    for (unsigned b = 0; b < QY_HISTOGRAM_BUCKETS; b++) {
        seen += histogram->buckets[b];
        if (seen <= wanted) continue;
        unsigned shift = b >> (QY_HISTOGRAM_SUB + 1) ? (b >> QY_HISTOGRAM_SUB) - 1 : 0;
        double low = (double)((uint64_t)(b - (shift << QY_HISTOGRAM_SUB)) << shift);
        double middle = low + (double)((UINT64_C(1) << shift) - 1) / 2;
        return (middle < (double)histogram->max ? middle : (double)histogram->max) * qy_ns_per_tick;
    }
    return (double)histogram->max * qy_ns_per_tick;
}
