// SPDX-License-Identifier: MIT
// counters.c: hardware counters by perf_event_open, software counters by getrusage.
#include "counters.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

const counter_event_t counters_hardware[COUNTERS_HARDWARE] = {
    {"cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
    {"instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
    {"cache_misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES},
    {"branch_misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES},
};

// One descriptor for each: a group cannot be inherited by threads.
static int open_event(const counter_event_t *event, int user_only) {
    struct perf_event_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.size = sizeof attr;
    attr.type = event->type;
    attr.config = event->config;
    attr.inherit = 1;
    attr.exclude_kernel = (unsigned)user_only & 1;
    attr.exclude_hv = 1;
    attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    return (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static const char *reason(int error) {
    switch (error) {
    case ENOENT:
    case ENODEV:
    case EOPNOTSUPP: return "the processor has no such counter, or the virtual machine does not show it";
    case EACCES:
    case EPERM: return "denied: kernel.perf_event_paranoid, or a container's filter of system calls";
    case ENOSYS: return "the kernel has no perf_event_open";
    case EMFILE:
    case ENFILE: return "no descriptor is free";
    case EBUSY: return "another one has the counters";
    default: return strerror(error);
    }
}

static void kernel_counts(uint64_t *page_faults, uint64_t *context_switches, uint64_t *task_clock_ns) {
    struct rusage usage;
    struct timespec cpu;
    getrusage(RUSAGE_SELF, &usage);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    *page_faults = (uint64_t)(usage.ru_minflt + usage.ru_majflt);
    *context_switches = (uint64_t)(usage.ru_nvcsw + usage.ru_nivcsw);
    *task_clock_ns = (uint64_t)cpu.tv_sec * 1000000000u + (uint64_t)cpu.tv_nsec;
}

void counters_begin(counters_t *c, const counter_event_t *events) {
    memset(c, 0, sizeof *c);
    c->events = events;
    for (int i = 0; events && i < COUNTERS_HARDWARE; i++) {
        c->fd[i] = open_event(&events[i], c->user_only);
        // Who may not see what the kernel does may still see what this process does.
        if (c->fd[i] < 0 && !c->user_only && (errno == EACCES || errno == EPERM) &&
            (c->fd[i] = open_event(&events[i], 1)) >= 0)
            c->user_only = 1;
        if (c->fd[i] < 0 && !c->error) c->error = errno;
    }
    kernel_counts(&c->page_faults, &c->context_switches, &c->task_clock_ns);
}

// The difference of two moments, both ways.
static void turn(counters_t *c, unsigned long request) {
    uint64_t faults, switches, clock_ns;
    kernel_counts(&faults, &switches, &clock_ns);
    c->page_faults = faults - c->page_faults;
    c->context_switches = switches - c->context_switches;
    c->task_clock_ns = clock_ns - c->task_clock_ns;
    c->stopped = !c->stopped;
    for (int i = 0; c->events && i < COUNTERS_HARDWARE; i++)
        if (c->fd[i] >= 0) ioctl(c->fd[i], request, 0);
}

void counters_stop(counters_t *c) {
    if (!c->stopped) turn(c, PERF_EVENT_IOC_DISABLE);
}

// now - (now - counted): a beginning so long ago as there was counted.
void counters_go_on(counters_t *c) {
    if (c->stopped) turn(c, PERF_EVENT_IOC_ENABLE);
}

// -1: nothing was counted.
static int64_t read_event(int fd) {
    struct {
        uint64_t value, enabled, running;
    } count;
    if (fd < 0 || read(fd, &count, sizeof count) != (ssize_t)sizeof count || !count.running) return -1;
    if (count.running >= count.enabled) return (int64_t)count.value;
    return (int64_t)((double)count.value * (double)count.enabled / (double)count.running);
}

void counters_end(counters_t *c, char *text) {
    counters_stop(c);
    // The longest there can be is below 400 bytes.
    size_t n = (size_t)snprintf(text, COUNTERS_TEXT,
        "\"page_faults\":%" PRIu64 ",\"context_switches\":%" PRIu64 ",\"task_clock_ns\":%" PRIu64, c->page_faults,
        c->context_switches, c->task_clock_ns);
    for (int i = 0; c->events && i < COUNTERS_HARDWARE; i++) {
        int64_t count = read_event(c->fd[i]);
        if (count >= 0)
            n += (size_t)snprintf(text + n, COUNTERS_TEXT - n, ",\"%s\":%" PRId64, c->events[i].name, count);
        else n += (size_t)snprintf(text + n, COUNTERS_TEXT - n, ",\"%s\":null", c->events[i].name);
        if (count < 0 && !c->error) c->error = EBUSY;
        if (c->fd[i] >= 0) close(c->fd[i]);
        c->fd[i] = -1;
    }
    if (c->user_only) n += (size_t)snprintf(text + n, COUNTERS_TEXT - n, ",\"user_only\":true");
    if (c->error) snprintf(text + n, COUNTERS_TEXT - n, ",\"hardware\":\"not available here: %s\"", reason(c->error));
}
