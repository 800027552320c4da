// SPDX-License-Identifier: MIT
// test_report.c: the lock of the reports. A signal's handler may report, search for leaks or end the process, so none
// runs on a thread that has the lock; a thread that waits for it is stopped like any other.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "check/options.h"
#include "check/report.h"
#include "harness.h"
#include "os/fake.h"

static _Atomic int came, came_within;
static void on_signal(int number) {
    (void)number;
    atomic_fetch_add(&came, 1);
    atomic_fetch_add(&came_within, qy_lock_is_mine(qy_check_report_lock()));
}

static void begin(void) {
    static char folder[] = "/tmp/quarry-test-report-XXXXXX";
    if (!qy_check_options.out) CHECK(qy_check_options.out = mkdtemp(folder));
    CHECK(signal(SIGUSR1, on_signal) != SIG_ERR);
    atomic_store(&came, 0);
    atomic_store(&came_within, 0);
}

static void raise_and_fill(qy_json_t *j, void *arg) {
    raise(SIGUSR1);
    qy_check_put_u64(j, "came", (uint64_t)atomic_load(&came));
    ++*(int *)arg;
}
static void write_line(int lines) {
    int filled = 0;
    for (int i = 0; i < lines; i++) CHECK(qy_check_report_line("test", 0, raise_and_fill, &filled));
    CHECK_EQ(filled, lines);
}

TEST(no_signal_within_a_line) {
    begin();
    write_line(3);
    CHECK(came == 3 && came_within == 0);
}

TEST(lines_within_a_hold) {
    begin();
    uint64_t mask = qy_check_report_hold();
    write_line(2);
    CHECK_EQ(came, 0);
    qy_check_report_let_go(mask);
    CHECK(came == 1 && came_within == 0);  // of an ordinary signal one waits
}

static _Atomic int held, waiting;
static void *wait_and_write(void *unused) {
    TEST_AWAIT(atomic_load(&held));
    atomic_store(&waiting, 1);
    write_line(1);
    return unused;
}
TEST(signals_while_it_waits) {
    pthread_t t;
    begin();
    CHECK_EQ(pthread_create(&t, NULL, wait_and_write, NULL), 0);  // with this thread's mask, as it is now
    uint64_t mask = qy_check_report_hold();
    atomic_store(&held, 1);
    TEST_AWAIT(atomic_load(&waiting));
    for (int i = 1; i < 20; i++) {
        CHECK_EQ(pthread_kill(t, SIGUSR1), 0);
        TEST_AWAIT(atomic_load(&came) == i);
    }
    qy_check_report_let_go(mask);
    CHECK_EQ(pthread_join(t, NULL), 0);
    CHECK(came == 20 && came_within == 0);
}

// Lines that were written, which a copy of this process does as well.
static unsigned lines_written(void) {
    char command[100];
    unsigned lines = 0;
    snprintf(command, sizeof command, "cat %s/*.check", qy_check_options.out);
    FILE *f = popen(command, "r");
    CHECK(f);
    for (int c; (c = fgetc(f)) != EOF;) lines += c == '\n';
    CHECK_EQ(pclose(f), 0);
    return lines;
}

TEST(a_line_needs_no_free_descriptor) {
    begin();
    write_line(1);
    unsigned before = lines_written();
    struct rlimit few, was;
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &was), 0);
    few = was;
    few.rlim_cur = 64;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    int taken[64], count = 0, filled = 0;
    while (count < 64 && (taken[count] = open("/dev/null", O_RDONLY)) >= 0) count++;
    CHECK_EQ(errno, EMFILE);
    write_line(2);
    // Nor is there a copy. What is to be said is text, and nothing is lost.
    quarry_os_fault(1, 1, 1u << QY_OS_SPAWN);
    CHECK(!qy_check_report_line("test", 0, raise_and_fill, &filled));
    CHECK(!qy_check_report_line("test", 0, raise_and_fill, &filled));
    CHECK_EQ(filled, 1);
    quarry_os_fault(0, 0, 0);
    while (count) close(taken[--count]);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &was), 0);
    CHECK_EQ(lines_written(), before + 2);
}

TEST(clean) {
    char command[100];
    if (!qy_check_options.out) return;
    snprintf(command, sizeof command, "rm -r %s", qy_check_options.out);
    CHECK_EQ(system(command), 0);
}

TEST_MAIN()
