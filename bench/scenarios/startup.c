// SPDX-License-Identifier: MIT
// startup: a program that does next to nothing, started again and again: what a malloc adds to every process.
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scenario.h"

static uint64_t with, mode, count = 500, blocks = 1, size = 32;
static const option_t options[] = {
    CHOICE("with", &with, "malloc", "the allocator"),
    CHOICE("mode", &mode, "start|child", "child: be the program that is started"),
    NUMBER("count", &count, 1, 1000000, "starts"),
    NUMBER("blocks", &blocks, 0, 1000000, "that the program allocates before it ends"),
    BYTES("size", &size, 8, 1 << 20, "bytes of a block"),
    {0},
};

// Peak memory in KiB and the sum of its blocks, to standard output.
static int child(void) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < blocks; i++) {
        const block_t b = block_new(size);
        sum += b.size;
        block_check(b);
    }
    const uint64_t result[2] = {(uint64_t)scenario_peak_kib(), sum};
    return write(1, result, sizeof result) != sizeof result;
}

// Returns the child's peak.
static uint64_t start_one(char **argv, uint64_t *check) {
    posix_spawn_file_actions_t actions;
    uint64_t result[2];
    pid_t pid;
    int ends[2], status;
    if (pipe(ends)) bench_fail("no pipe");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    if (posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ)) bench_fail("the program cannot be started");
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    const ssize_t n = read(ends[0], result, sizeof result);
    close(ends[0]);
    if (waitpid(pid, &status, 0) != pid || status || n != sizeof result) bench_fail("a started program failed");
    *check += result[1];
    return result[0];
}

int main(int argc, char **argv) {
    phase_t all = {.name = "", .who = RUSAGE_CHILDREN};
    char number[32], bytes[32];
    scenario_begin(argc, argv, "startup",
        "A program is started, makes a few blocks and ends. An operation is a start; memory, processor time and page "
        "faults are\nthose of the started ones.",
        options);
    if (mode) return child();
    snprintf(number, sizeof number, "%" PRIu64, blocks);
    snprintf(bytes, sizeof bytes, "%" PRIu64, size);
    char *const started[] = {argv[0], "--mode", "child", "--blocks", number, "--size", bytes, NULL};
    uint64_t check = 0, peak = 0;
    struct rusage before, after;
    getrusage(RUSAGE_CHILDREN, &before);
    phase_begin(&all);
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t kib = start_one((char **)started, &check);
        if (kib > peak) peak = kib;
    }
    phase_end(&all, count);
    getrusage(RUSAGE_CHILDREN, &after);
    if (check != count * blocks * size) bench_fail("started programs did something else");
    all.peak_kib = (long)peak;
    scenario_value("started_peak_kib", (double)peak);
    scenario_value("started_faults", (double)(after.ru_minflt - before.ru_minflt) / (double)count);
    scenario_value("started_cpu_us",
        ((double)(after.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_utime.tv_sec - before.ru_stime.tv_sec) *
                1e6 +
            (double)(after.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_utime.tv_usec -
                     before.ru_stime.tv_usec)) /
            (double)count);
    scenario_print(&all, blocks * size, check);
    return scenario_end();
}
