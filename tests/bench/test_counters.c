// SPDX-License-Identifier: MIT
// test_counters.c: the counters of benchmarks, where they can be had and where they cannot.
#include <linux/filter.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>

#include "captured.h"
#include "common/counters.h"

// Counters of the kernel in the place of those of the processor: every machine has them, so that reading can be tested.
static const counter_event_t always[COUNTERS_HARDWARE] = {
    {"cycles", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK},
    {"instructions", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK},
    {"cache_misses", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS},
    {"branch_misses", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS_MIN},
};
// There is no such thing.
static const counter_event_t never[COUNTERS_HARDWARE] = {
    {"cycles", PERF_TYPE_SOFTWARE, 9999},
    {"instructions", PERF_TYPE_SOFTWARE, 9999},
    {"cache_misses", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS},
    {"branch_misses", PERF_TYPE_SOFTWARE, 9999},
};

// The member `name` of the object; -1: null, -2: not there.
static long long member(const char *text, const char *name) {
    char key[40];
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(text, key);
    if (!at) return -2;
    at += strlen(key);
    return !strncmp(at, "null", 4) ? -1 : strtoll(at, NULL, 10);
}

static volatile uint64_t sink;
static void *work(void *unused) {
    (void)unused;
    char *p = mmap(NULL, 64 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    for (int i = 0; i < 64; i++) p[i * 4096] = 1;
    munmap(p, 64 * 4096);
    for (uint64_t i = 0; i < 20000000; i++) sink += i;
    return NULL;
}

static void counted(char *text, const counter_event_t *events) {
    counters_t c;
    pthread_t thread;
    counters_begin(&c, events);
    CHECK_EQ(pthread_create(&thread, NULL, work, NULL), 0);
    pthread_join(thread, NULL);
    work(NULL);
    counters_end(&c, text);
    for (int i = 0; i < COUNTERS_HARDWARE; i++) CHECK_EQ(c.fd[i], events ? -1 : 0);
    CHECK_LT(strlen(text), COUNTERS_TEXT - 1);
}

static void the_kernels_are_there(const char *text) {
    CHECK_GE(member(text, "page_faults"), 2 * 64);
    CHECK_GE(member(text, "task_clock_ns"), 1000000);
    CHECK_GE(member(text, "context_switches"), 0);
}

static long long cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

// Work between two looks at the processor time; what it took is added to *ns. The same work takes several times longer
// on a busy machine, so that only what one run of it took says anything about what was counted of it.
static void measured_work(long long *ns) {
    long long begin = cpu_ns();
    work(NULL);
    *ns += cpu_ns() - begin;
}

// What happens while the counters are stopped is in none of them.
TEST(stopped_in_between) {
    char once[COUNTERS_TEXT], some[COUNTERS_TEXT];
    counters_t c;
    counters_begin(&c, NULL);
    work(NULL);
    counters_end(&c, once);
    long long counted_ns = 0, stopped_ns = 0, begin = cpu_ns();
    counters_begin(&c, NULL);
    counters_stop(&c);
    measured_work(&stopped_ns);
    counters_stop(&c);
    measured_work(&stopped_ns);
    counters_go_on(&c);
    counters_go_on(&c);
    measured_work(&counted_ns);
    counters_stop(&c);
    measured_work(&stopped_ns);
    counters_end(&c, some);
    long long all_ns = cpu_ns() - begin;
    CHECK_GE(member(some, "page_faults"), 64);
    CHECK_LT(member(some, "page_faults"), member(once, "page_faults") + 32);
    CHECK_GE(member(some, "task_clock_ns"), counted_ns);
    CHECK_LE(member(some, "task_clock_ns"), all_ns - stopped_ns);
}

static int can_open_any(void) {
    struct perf_event_attr attr = {.size = sizeof attr,
        .type = PERF_TYPE_SOFTWARE,
        .config = PERF_COUNT_SW_TASK_CLOCK,
        .exclude_kernel = 1,
        .exclude_hv = 1};
    int fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

TEST(not_asked_for) {
    char text[COUNTERS_TEXT];
    counted(text, NULL);
    the_kernels_are_there(text);
    CHECK_EQ(member(text, "cycles"), -2);
    CHECK(!strstr(text, "not available"));
}

TEST(counts_of_all_threads) {
    if (!can_open_any()) TEST_SKIP("needs perf_event_open: a lower kernel.perf_event_paranoid, or CAP_PERFMON");
    char text[COUNTERS_TEXT];
    counted(text, always);
    the_kernels_are_there(text);
    CHECK_GE(member(text, "cache_misses"), 2 * 64);
    CHECK_GE(member(text, "branch_misses"), 2 * 64);
    // Ours of the clock, and the kernel's, of both threads.
    CHECK_GE(member(text, "cycles"), member(text, "task_clock_ns") / 2);
    CHECK(!strstr(text, "not available"));
}

// The same of counters that are read from the kernel.
TEST(events_are_stopped) {
    if (!can_open_any()) TEST_SKIP("needs perf_event_open: a lower kernel.perf_event_paranoid, or CAP_PERFMON");
    char text[COUNTERS_TEXT];
    counters_t c;
    counters_begin(&c, always);
    counters_stop(&c);
    work(NULL);
    CHECK_EQ(c.stopped, 1);
    counters_go_on(&c);
    work(NULL);
    counters_stop(&c);
    work(NULL);
    counters_end(&c, text);
    CHECK_GE(member(text, "cache_misses"), 64);
    CHECK_LT(member(text, "cache_misses"), 2 * 64);
}

TEST(those_of_the_processor) {
    char text[COUNTERS_TEXT];
    counted(text, counters_hardware);
    printf("%s\n", text);
    the_kernels_are_there(text);
    static const char *const names[] = {"cycles", "instructions", "cache_misses", "branch_misses"};
    int counts = 0;
    for (int i = 0; i < 4; i++) {
        CHECK_GE(member(text, names[i]), -1);
        counts += member(text, names[i]) >= 0;
    }
    // a reason where one is missing, and only there
    CHECK_EQ(strstr(text, "\"hardware\":\"not available here: ") != NULL, counts < 4);
    if (member(text, "instructions") >= 0) CHECK_GE(member(text, "instructions"), 40000000);
}

TEST(some_are_missing) {
    if (!can_open_any()) TEST_SKIP("needs perf_event_open: a lower kernel.perf_event_paranoid, or CAP_PERFMON");
    char text[COUNTERS_TEXT];
    counted(text, never);
    the_kernels_are_there(text);
    CHECK_EQ(member(text, "cycles"), -1);
    CHECK_EQ(member(text, "branch_misses"), -1);
    CHECK_GE(member(text, "cache_misses"), 2 * 64);
    CHECK(strstr(text, "\"hardware\":\"not available here: the processor has no such counter"));
}

// ---- where the kernel says no ------------------------------------------------------------------------------------

static void forbid(int error) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_perf_event_open, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) _exit(77);
}

typedef struct refusal {
    int error;
    const char *reason;
} refusal_t;

static void refused(void *arg) {
    const refusal_t *r = arg;
    char text[COUNTERS_TEXT], expected[200];
    if (r->error != EMFILE) forbid(r->error);
    else CHECK_EQ(setrlimit(RLIMIT_NOFILE, &(struct rlimit){3, 3}), 0);
    counted(text, counters_hardware);
    the_kernels_are_there(text);
    CHECK_EQ(member(text, "cycles"), -1);
    CHECK_EQ(member(text, "instructions"), -1);
    CHECK_EQ(member(text, "cache_misses"), -1);
    CHECK_EQ(member(text, "branch_misses"), -1);
    snprintf(expected, sizeof expected, ",\"hardware\":\"not available here: %s", r->reason);
    if (!strstr(text, expected)) TEST_FAIL("no %s in %s", expected, text);
    CHECK(text[strlen(text) - 1] == '"');
}

TEST(the_kernel_refuses) {
    static refusal_t cases[] = {{EPERM, "denied"}, {EACCES, "denied"}, {ENOSYS, "the kernel has no perf_event_open"},
        {ENOENT, "the processor has no"}, {EBUSY, "another one has the counters"}, {EINVAL, "Invalid argument"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        captured_t c = capture(refused, &cases[i]);
        if (c.exit_code == 77) TEST_SKIP("needs seccomp");
        if (c.exit_code) TEST_FAIL("error %d: %d %d %.300s", cases[i].error, c.exit_code, c.exit_signal, c.text);
    }
    if (!can_open_any()) return;  // there it is denied before a descriptor is looked for
    run_apart(refused, &(refusal_t){EMFILE, "no descriptor is free"});
}

TEST_MAIN()
