// SPDX-License-Identifier: MIT
// counters.h: what the machine and the kernel count while a phase of a benchmark runs.
//
// Of the processor, by perf_event_open: cycles, instructions, cache misses, branch misses, of all threads that this one
// starts in the meantime. Where they cannot be had (virtual machines, containers, kernel.perf_event_paranoid) they are
// null, with the reason. Of the kernel, always: page faults, context switches, task clock.
#ifndef BENCH_COUNTERS_H
#define BENCH_COUNTERS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { COUNTERS_HARDWARE = 4,
    COUNTERS_TEXT = 512 };

// What perf_event_open is asked for.
typedef struct counter_event {
    const char *name;
    uint32_t type;
    uint64_t config;
} counter_event_t;
extern const counter_event_t counters_hardware[COUNTERS_HARDWARE];

typedef struct counters {
    const counter_event_t *events;  // COUNTERS_HARDWARE of them, or NULL
    int fd[COUNTERS_HARDWARE];      // -1: not available
    int error;                      // of the first that is not, errno; else 0
    int user_only;                  // the kernel's own work is not in the counts of the processor
    int stopped;
    // when it began to count; while it is stopped, what was counted
    uint64_t page_faults, context_switches, task_clock_ns;
} counters_t;

// The phase begins; nothing is counted before. `events`: counters_hardware; NULL: the kernel's counters only.
void counters_begin(counters_t *c, const counter_event_t *events);

// What comes now is not counted; from here on it is again. In turns, for a phase of several intervals.
void counters_stop(counters_t *c);
void counters_go_on(counters_t *c);

// It has ended, stopped or not: members of a JSON object into `text`, COUNTERS_TEXT bytes. Where a counter had to share
// the processor's registers with others, its count is scaled to the whole time. Descriptors are closed.
//   "page_faults":N,"context_switches":N,"task_clock_ns":N,"cycles":N|null,...[,"user_only":true][,"hardware":"not
//   available here: REASON"]
void counters_end(counters_t *c, char *text);

#ifdef __cplusplus
}
#endif

#endif
