// SPDX-License-Identifier: MIT
// scenario.c: options, phases and lines of JSON of the programs in bench/scenarios.
#include "scenario.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static const char *scenario_name;
static const option_t *option_table;

// What is written, in static memory; pages of it that are not used cost nothing.
static char output[1 << 22], values[1 << 14], series[1 << 21];
static size_t output_used, values_used, series_used;
static int columns;

static void add(char *text, size_t size, size_t *used, const char *format, ...) __attribute__((format(printf, 4, 5)));
static void add(char *text, size_t size, size_t *used, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text + *used, size - *used, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= size - *used) bench_fail("the results are too long");
    *used += (size_t)n;
}
#define ADD(to, ...) add(to, sizeof to, &to##_used, __VA_ARGS__)

// JSON has no word for what is not a number.
static void add_number(char *text, size_t size, size_t *used, double value) {
    if (value - value != 0) add(text, size, used, "null");
    else add(text, size, used, "%.10g", value);
}

// ---- options ----------------------------------------------------------------------------------------------------

// The choice of this number; its length in *length.
static const char *choice_text(const option_t *o, uint64_t number, size_t *length) {
    const char *at = o->choices;
    for (; number && (at = strchr(at, '|')); number--) at++;
    if (at) *length = strcspn(at, "|");
    return at;
}

static void help(const char *program, const char *about) {
    printf("%s\n\nusage: %s [--OPTION VALUE]...\n\n", about, program);
    for (const option_t *o = option_table; o->name; o++) {
        char value[64];
        size_t length = 0;
        const char *text = o->kind == OPTION_CHOICE ? choice_text(o, *o->value, &length) : NULL;
        if (text) snprintf(value, sizeof value, "%.*s", (int)length, text);
        else snprintf(value, sizeof value, "%" PRIu64, *o->value);
        printf(
            "  --%-10s %s%s%s (%s)\n", o->name, o->help, o->choices ? ": " : "", o->choices ? o->choices : "", value);
    }
    exit(fflush(stdout) ? 1 : 0);
}

static __attribute__((noreturn)) void usage(
    const char *program, const char *option, const char *value, const option_t *o) {
    if (!o) fprintf(stderr, "%s: no option %s; --help lists them\n", program, option);
    else if (!value) fprintf(stderr, "%s: --%s needs a value\n", program, o->name);
    else if (o->kind == OPTION_CHOICE)
        fprintf(stderr, "%s: --%s is one of %s, not %s\n", program, o->name, o->choices, value);
    else
        fprintf(stderr, "%s: --%s is a number from %" PRIu64 " to %" PRIu64 ", not %s\n", program, o->name, o->low,
            o->high, value);
    exit(2);
}

static bool read_choice(const option_t *o, const char *value) {
    size_t length = 0;
    const char *text;
    for (uint64_t i = 0; (text = choice_text(o, i, &length)); i++) {
        if (strlen(value) != length || strncmp(value, text, length)) continue;
        *o->value = i;
        return true;
    }
    return false;
}

static bool read_number(const option_t *o, const char *value) {
    char *end;
    errno = 0;
    const uint64_t number = strtoull(value, &end, 10);
    if (*value < '0' || *value > '9' || errno) return false;
    uint64_t factor = 1;
    if (o->kind == OPTION_BYTES && *end) {
        static const char suffixes[] = "kMG";
        const char *const at = strchr(suffixes, *end++);
        if (!at) return false;
        factor = (uint64_t)1 << (10 * (at - suffixes + 1));
    }
    if (*end || number > UINT64_MAX / factor || number * factor < o->low || number * factor > o->high) return false;
    *o->value = number * factor;
    return true;
}

static const option_t *find_option(const char *name, size_t length) {
    for (const option_t *o = option_table; o->name; o++)
        if (strlen(o->name) == length && strncmp(o->name, name, length) == 0) return o;
    return NULL;
}

void scenario_begin(int argc, char **argv, const char *name, const char *about, const option_t *options) {
    scenario_name = name;
    option_table = options;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help")) help(argv[0], about);
        const bool dashes = !strncmp(argv[i], "--", 2);
        const size_t length = dashes ? strcspn(argv[i] + 2, "=") : 0;
        const option_t *const o = dashes ? find_option(argv[i] + 2, length) : NULL;
        if (!o) usage(argv[0], argv[i], NULL, NULL);
        const char *const value = argv[i][2 + length] ? argv[i] + 3 + length : i + 1 < argc ? argv[++i]
                                                                                            : NULL;
        if (!value || !(o->kind == OPTION_CHOICE ? read_choice(o, value) : read_number(o, value)))
            usage(argv[0], argv[i], value, o);
    }
}

const char *scenario_with(void) {
    static char text[64];
    const option_t *const o = find_option("with", 4);
    size_t length = 0;
    const char *const chosen = o ? choice_text(o, *o->value, &length) : NULL;
    snprintf(text, sizeof text, "%.*s", chosen ? (int)length : 6, chosen ? chosen : "malloc");
    return text;
}

static uint64_t option_or_one(const char *name) {
    const option_t *const o = find_option(name, strlen(name));
    return o ? *o->value : 1;
}

void scenario_not_applicable(const char *why) {
    fprintf(stderr, "%s: not applicable: %s\n", scenario_name, why);
    _Exit(77);
}

// ---- phases -----------------------------------------------------------------------------------------------------

static double seconds_of(struct timeval t) { return (double)t.tv_sec + (double)t.tv_usec * 1e-6; }

static double cpu_now(int who, const struct rusage *usage) {
    struct timespec t;
    if (who == RUSAGE_CHILDREN) return seconds_of(usage->ru_utime) + seconds_of(usage->ru_stime);
    clock_gettime(who == RUSAGE_THREAD ? CLOCK_THREAD_CPUTIME_ID : CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// Counters are of the whole process.
static void phase_counters_on(phase_t *p) {
    if (p->who != RUSAGE_SELF) return;
    if (p->begun) counters_go_on(&p->counters);
    else counters_begin(&p->counters, getenv("QUARRY_BENCH_COUNTERS") ? counters_hardware : NULL);
}

void phase_begin(phase_t *p) {
    struct rusage usage;
    phase_counters_on(p);
    p->begun = true;
    getrusage(p->who, &usage);
    p->start_user = seconds_of(usage.ru_utime);
    p->start_system = seconds_of(usage.ru_stime);
    p->start_faults = usage.ru_minflt + usage.ru_majflt;
    p->start_cpu = cpu_now(p->who, &usage);
    p->start = bench_now();
}

void phase_end(phase_t *p, uint64_t operations) { phase_end_timed(p, bench_now() - p->start, operations); }

void phase_end_timed(phase_t *p, double seconds, uint64_t operations) {
    struct rusage usage;
    p->seconds += seconds;
    getrusage(p->who, &usage);
    p->cpu_seconds += cpu_now(p->who, &usage) - p->start_cpu;
    p->user_seconds += seconds_of(usage.ru_utime) - p->start_user;
    p->system_seconds += seconds_of(usage.ru_stime) - p->start_system;
    p->faults += usage.ru_minflt + usage.ru_majflt - p->start_faults;
    if (p->who == RUSAGE_SELF) counters_stop(&p->counters);
    p->operations += operations;
    p->intervals++;
    const double ns = operations ? seconds * 1e9 / (double)operations : 0;
    if (p->intervals == 1 || ns < p->best_ns) p->best_ns = ns;
}

// ---- results ----------------------------------------------------------------------------------------------------

void scenario_value(const char *name, double value) {
    ADD(values, "%s\"%s\":", values_used ? "," : "", name);
    add_number(values, sizeof values, &values_used, value);
}

void scenario_columns(const char *first, ...) {
    va_list args;
    va_start(args, first);
    series_used = 0;
    columns = 0;
    ADD(series, "{\"columns\":[");
    for (const char *name = first; name; name = va_arg(args, const char *))
        ADD(series, "%s\"%s\"", columns++ ? "," : "", name);
    ADD(series, "],\"rows\":[");
    va_end(args);
}

void scenario_row(double x, ...) {
    va_list args;
    va_start(args, x);
    ADD(series, "%s[", series[series_used - 1] == '[' ? "" : ",");
    add_number(series, sizeof series, &series_used, x);
    for (int i = 1; i < columns; i++) {
        ADD(series, ",");
        add_number(series, sizeof series, &series_used, va_arg(args, double));
    }
    ADD(series, "]");
    va_end(args);
}

void scenario_print(const phase_t *p, uint64_t payload_bytes, uint64_t check) {
    phase_t done = *p;
    char counted[COUNTERS_TEXT] = "";
    if (p->intervals > 1) scenario_value("best_ns", p->best_ns);
    if (p->begun && p->who == RUSAGE_SELF) counters_end(&done.counters, counted);
    else if (p->begun) snprintf(counted, sizeof counted, "\"page_faults\":%ld", p->faults);
    ADD(output,
        "{\"scenario\":\"%s\",\"phase\":\"%s\",\"allocator\":\"%s\",\"threads\":%" PRIu64 ",\"rounds\":%" PRIu64,
        scenario_name, p->name, scenario_with(), option_or_one("threads"), option_or_one("rounds"));
    ADD(output,
        ",\"seconds\":%.9f,\"operations\":%" PRIu64, p->seconds, p->operations);
    if (p->begun)
        ADD(output, ",\"cpu_seconds\":%.9f,\"user_seconds\":%.6f,\"system_seconds\":%.6f", p->cpu_seconds,
            p->user_seconds, p->system_seconds);
    else ADD(output, ",\"cpu_seconds\":null,\"user_seconds\":null,\"system_seconds\":null");
    ADD(output, ",\"rss_peak_kib\":%ld,\"payload_bytes\":%" PRIu64 ",\"check\":\"%016" PRIx64 "\",\"values\":{%.*s}",
        p->peak_kib ? p->peak_kib : scenario_peak_kib(), payload_bytes, check, (int)values_used, values);
    if (columns) ADD(output, ",\"series\":%.*s]}", (int)series_used, series);
    if (p->begun) ADD(output, ",\"counters\":{%s}", counted);
    ADD(output, "}\n");
    values_used = series_used = 0;
    columns = 0;
}

int scenario_end(void) {
    for (size_t done = 0; done < output_used;) {
        const ssize_t n = write(1, output + done, output_used - done);
        if (n < 0 && errno != EINTR) return 1;
        if (n > 0) done += (size_t)n;
    }
    return 0;
}

// ---- the process ------------------------------------------------------------------------------------------------

// A line "NAME: 123 kB" of /proc/self/status; read without stdio, which allocates.
static long status_kib(const char *name) {
    char text[4096];
    const int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (n <= 0) return -1;
    text[n] = 0;
    const char *const at = strstr(text, name);
    return at ? strtol(at + strlen(name), NULL, 10) : -1;
}

long scenario_rss_kib(void) { return status_kib("\nVmRSS:"); }
long scenario_anon_kib(void) { return status_kib("\nRssAnon:"); }
long scenario_peak_kib(void) { return status_kib("\nVmHWM:"); }

void *scenario_memory(size_t bytes) {
    void *const p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (p == MAP_FAILED) bench_fail("the kernel has no memory");
    return p;
}

// ---- threads ----------------------------------------------------------------------------------------------------

static worker_t workers[SCENARIO_THREADS];
static _Atomic unsigned ready;

static void *worker_main(void *arg) {
    worker_t *const w = arg;
    // Not a barrier, from which threads wake one by one.
    atomic_fetch_add_explicit(&ready, 1, memory_order_acq_rel);
    while (atomic_load_explicit(&ready, memory_order_acquire) < w->of) sched_yield();
    w->begin = bench_now();
    w->body(w);
    w->end = bench_now();
    return NULL;
}

double workers_run(unsigned threads, void (*body)(worker_t *worker), void *shared, uint64_t seed, uint64_t *check) {
    atomic_store_explicit(&ready, 0, memory_order_relaxed);
    for (unsigned i = 0; i < threads; i++) {
        workers[i] =
            (worker_t){.number = i, .of = threads, .random = seed * 1000003 + i, .shared = shared, .body = body};
        if (threads == 1) worker_main(&workers[i]);
        else if (pthread_create(&workers[i].id, NULL, worker_main, &workers[i])) bench_fail("no thread");
    }
    for (unsigned i = 0; threads > 1 && i < threads; i++) pthread_join(workers[i].id, NULL);
    double begin = workers[0].begin, end = workers[0].end;
    for (unsigned i = 0; i < threads; i++) {
        if (workers[i].begin < begin) begin = workers[i].begin;
        if (workers[i].end > end) end = workers[i].end;
        *check += workers[i].check;
    }
    return end - begin;
}
