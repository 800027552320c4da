// SPDX-License-Identifier: MIT
// sampler.c: a process that looks at ours now and then: its memory, and what it has live
//
// A process and not a thread: some allocators take another path as soon as there is a second thread, and the
// times of a thread would be counted as the allocator's. It has its own copy of nothing but the stack and what libc
// writes; the counters it reads are in shared memory.
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "replay.h"

qy_board_t *qy_board;

static pid_t child;
static int statm;

enum { FIRST_INTERVAL = 1000000 };  // nanoseconds; doubled whenever the board is full

static void set_state(uint32_t state) {
    atomic_store(&qy_board->state, state);
    syscall(SYS_futex, &qy_board->state, FUTEX_WAKE, INT32_MAX, (void *)0, (void *)0, 0);
}

// Wait until the state is no longer `state`, or so long.
static void wait_state(uint32_t state, uint64_t ns) {
    struct timespec time = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    syscall(SYS_futex, &qy_board->state, FUTEX_WAIT, state, &time, (void *)0, 0);
}

// The second and third number of statm: resident pages, and those of files and shared memory among them.
static uint64_t anonymous(uint64_t page) {
    char text[256];
    ssize_t n = pread(statm, text, sizeof text - 1, 0);
    if (n <= 0) return 0;
    text[n] = 0;
    char *at = text;
    strtoull(at, &at, 10);
    uint64_t resident = strtoull(at, &at, 10), shared = strtoull(at, &at, 10);
    return resident > shared ? (resident - shared) * page : 0;
}

// Every second sample goes; what is left looks as if it had been taken half as often.
static void thin_out(void) {
    for (uint32_t i = 0; i < QY_SAMPLES / 2; i++) qy_board->samples[i] = qy_board->samples[2 * i];
    qy_board->count = QY_SAMPLES / 2;
    qy_board->interval_ns *= 2;
}

static void sample(uint64_t page) {
    qy_sample_t s = {.ns = qy_now_ns() - qy_board->start_ns};
    for (uint32_t i = 0; i < qy_seat_count; i++) {
        s.live += atomic_load_explicit(&qy_seats[i].live, memory_order_relaxed);
        s.operations += atomic_load_explicit(&qy_seats[i].operations, memory_order_relaxed);
    }
    s.anonymous = anonymous(page);
    if (s.live > qy_board->peak_live) qy_board->peak_live = s.live;
    if (s.anonymous > qy_board->peak_anonymous) qy_board->peak_anonymous = s.anonymous;
    if (qy_board->count == QY_SAMPLES) thin_out();
    qy_board->samples[qy_board->count++] = s;
}

static _Noreturn void watch(pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    while (atomic_load(&qy_board->state) == 0) wait_state(0, 1000000000u);
    while (atomic_load(&qy_board->state) == 1) {
        // Not while all are between repeats; but there is a sample of the start.
        if (atomic_load(&qy_board->playing) || !qy_board->count) sample(page);
        wait_state(1, qy_board->interval_ns);
    }
    sample(page);
    _exit(0);
}

void qy_sampler_start(void) {
    qy_board = qy_own(1, sizeof *qy_board);
    qy_board->interval_ns = FIRST_INTERVAL;
    if (!qy_config.sample) return;
    pid_t self = getpid();
    statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    child = fork();
    if (child < 0) qy_fail(QY_SYSTEM, "no process for the sampler");
    if (!child) watch(self);
    close(statm);
}

void qy_sampler_go(uint64_t start_ns) {
    qy_board->start_ns = start_ns;
    if (child) set_state(1);
}

void qy_sampler_stop(void) {
    if (!child) return;
    set_state(2);
    waitpid(child, 0, 0);
}
