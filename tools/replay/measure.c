// SPDX-License-Identifier: MIT
// measure.c: what the process used, and what a tick is worth
#include <sys/resource.h>

#include "clock.h"
#include "replay.h"

double qy_ns_per_tick = 1;
uint64_t qy_timer_ticks;

static uint64_t start_ns, start_ticks;

void qy_read_usage(qy_usage_t *usage, int who) {
    struct rusage raw;
    getrusage(who, &raw);
    *usage = (qy_usage_t){
        .user_ns = (uint64_t)raw.ru_utime.tv_sec * 1000000000u + (uint64_t)raw.ru_utime.tv_usec * 1000u,
        .system_ns = (uint64_t)raw.ru_stime.tv_sec * 1000000000u + (uint64_t)raw.ru_stime.tv_usec * 1000u,
        .minor_faults = (uint64_t)raw.ru_minflt,
        .major_faults = (uint64_t)raw.ru_majflt,
        .voluntary = (uint64_t)raw.ru_nvcsw,
        .involuntary = (uint64_t)raw.ru_nivcsw,
    };
}

void qy_usage_add(qy_usage_t *sum, const qy_usage_t *before, const qy_usage_t *after) {
    sum->user_ns += after->user_ns - before->user_ns;
    sum->system_ns += after->system_ns - before->system_ns;
    sum->minor_faults += after->minor_faults - before->minor_faults;
    sum->major_faults += after->major_faults - before->major_faults;
    sum->voluntary += after->voluntary - before->voluntary;
    sum->involuntary += after->involuntary - before->involuntary;
}

static void less(uint64_t *number, uint64_t other) { *number -= other < *number ? other : *number; }

// The kernel divides time into the process's and its own by estimate, so a part may seem to be more than the whole.
void qy_usage_less(qy_usage_t *usage, const qy_usage_t *other) {
    less(&usage->user_ns, other->user_ns);
    less(&usage->system_ns, other->system_ns);
    less(&usage->minor_faults, other->minor_faults);
    less(&usage->major_faults, other->major_faults);
    less(&usage->voluntary, other->voluntary);
    less(&usage->involuntary, other->involuntary);
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
