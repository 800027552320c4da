// SPDX-License-Identifier: MIT
// main.c: the order of things, and the options
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "replay.h"
#include "touch.h"

qy_config_t qy_config = {.instances = 1, .repeats = 1, .sample = true};
qy_plan_t qy_plan;
qy_wrong_t *qy_wrong;

static const char usage[] =
    "usage: quarry-replayer [OPTION...] PLAN\n"
    "Plays a plan that `quarry replay` compiled on the malloc of this process.\n"
    "  --report FILE       write what was measured there, as JSON\n"
    "  --instances N       so many performances at once\n"
    "  --repeats N         each so many times\n"
    "  --touch all|recorded|first|none   what is written into blocks: a word in each line, the same as far as the\n"
    "                      program wrote, one in each page, nothing\n"
    "  --verify            fill blocks, and compare when they are resized or freed\n"
    "  --real              not before the recorded times\n"
    "  --early             allocate a byte before libraries are ready, as far as the C library lets us\n"
    "  --no-huge-pages     have the kernel give us none\n"
    "  --timed             time each call\n"
    "  --no-samples        do not sample memory\n"
    "  --looks             look at the memory where the recorder did\n"
    "  --idle SECONDS      wait at the end, and see what memory is given back\n"
    "  --curve N           live bytes at every Nth operation, where their order is exact; no call is timed then\n"
    "  --memory BYTES      have no more address space than that\n"
    "  --classic, --silent, --talk   print what the simulator of .ms files prints; less; each call\n";

static _Noreturn void misused(const char *what, const char *value) {
    if (value) qy_fail(QY_USAGE, "%s: %s makes no sense; see --help", what, value);
    qy_fail(QY_USAGE, "%s; see --help", what);
}

static uint64_t number(const char *option, const char *text, uint64_t least, uint64_t most) {
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (errno || *end || end == text || *text == '-' || value < least || value > most) misused(option, text);
    return value;
}

static qy_touch_t touch_of(const char *text) {
    if (!strcmp(text, "all")) return QY_TOUCH_ALL;
    if (!strcmp(text, "recorded")) return QY_TOUCH_RECORDED;
    if (!strcmp(text, "first")) return QY_TOUCH_FIRST;
    if (!strcmp(text, "none")) return QY_TOUCH_NONE;
    misused("--touch", text);
}

static double seconds(const char *text) {
    char *end;
    double value = strtod(text, &end);
    if (*end || end == text || !(value >= 0 && value <= 86400)) misused("--idle", text);
    return value;
}

static void limit_memory(uint64_t bytes) {
    struct rlimit limit = {bytes, bytes};
    if (setrlimit(RLIMIT_AS, &limit)) qy_fail(QY_SYSTEM, "--memory: %s", strerror(errno));
}

static void read_options(int argc, char **argv) {
    static const struct option options[] = {{"report", required_argument, 0, 'o'},
        {"instances", required_argument, 0, 't'}, {"repeats", required_argument, 0, 'r'},
        {"touch", required_argument, 0, 'T'}, {"verify", no_argument, 0, 'v'}, {"real", no_argument, 0, 'R'},
        {"timed", no_argument, 0, 'l'}, {"no-samples", no_argument, 0, 'n'}, {"looks", no_argument, 0, 'L'},
        {"early", no_argument, 0, 'e'}, {"no-huge-pages", no_argument, 0, 'H'},
        {"idle", required_argument, 0, 'i'},
        {"curve", required_argument, 0, 'c'}, {"memory", required_argument, 0, 'm'}, {"classic", no_argument, 0, 'C'},
        {"silent", no_argument, 0, 's'}, {"talk", no_argument, 0, 'd'}, {"help", no_argument, 0, 'h'}, {0, 0, 0, 0}};
    for (int c; (c = getopt_long(argc, argv, "", options, 0)) != -1;) {
        switch (c) {
        case 'o': qy_config.report = optarg; break;
        case 't': qy_config.instances = (uint32_t)number("--instances", optarg, 1, 100000); break;
        case 'r': qy_config.repeats = (uint32_t)number("--repeats", optarg, 1, 100000000); break;
        case 'T': qy_config.touch = touch_of(optarg); break;
        case 'v': qy_config.verify = true; break;
        case 'R': qy_config.real = true; break;
        case 'l': qy_config.timed = true; break;
        case 'n': qy_config.sample = false; break;
        case 'L': qy_config.looks = true; break;
        case 'e': break;                                         // done (early.c)
        case 'H': prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); break;  // no program has it where the kernel has no switch
        case 'i': qy_config.idle_s = seconds(optarg); break;
        case 'c': qy_config.curve_step = number("--curve", optarg, 1, UINT64_MAX); break;
        case 'm': limit_memory(number("--memory", optarg, 1, UINT64_MAX)); break;
        case 'C': qy_config.classic = qy_config.timed = true; break;
        case 's': qy_config.silent = true; break;
        case 'd': qy_config.talk = qy_config.classic = qy_config.timed = true; break;
        case 'h':
            if (write(1, usage, sizeof usage - 1) < 0) {}
            _exit(QY_DONE);
        default: _exit(QY_USAGE);  // getopt has said why
        }
    }
    if (argc - optind != 1) misused("one plan is needed", 0);
    if (qy_config.curve_step && qy_config.timed)
        misused("--curve does not go with --timed, --classic and --talk: what notes live bytes times no call", 0);
    qy_config.plan = argv[optind];
}

static void idle(double s) {
    struct timespec time = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
    while (nanosleep(&time, &time) && errno == EINTR) {}
}

// Looking helps only who has a processor of its own.
static unsigned spins(void) {
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    return (uint64_t)qy_plan.head->alive * qy_config.instances <= (uint64_t)(cpus > 0 ? cpus : 1) ? 4000 : 40;
}

static void perform(qy_results_t *r) {
    r->own = qy_rss_own();
    r->start = qy_rss_now().anonymous;
    r->peak_exact = qy_rss_reset_peak();
    qy_calibrate_begin();
    if (qy_config.classic) qy_classic_start();
    qy_usage_t before, after;
    qy_read_usage(&before, RUSAGE_SELF);
    qy_play_all();
    qy_read_usage(&after, RUSAGE_SELF);
    uint64_t peak = r->peak_exact ? qy_rss_peak() : 0;
    if (peak && peak < qy_looks_peak()) peak = qy_looks_peak();
    qy_sampler_stop();
    qy_usage_add(&r->used, &before, &after);
    for (uint32_t i = 0; i < qy_config.instances; i++) qy_usage_less(&r->used, &qy_instances[i].between);
    r->end = qy_rss_now().anonymous;
    qy_calibrate_end();
    if (qy_config.idle_s > 0) {
        idle(qy_config.idle_s);
        r->end_idle = qy_rss_now().anonymous;
    }
    // Who looks sees the end of a program, which leaves what it has.
    for (uint32_t i = 0; i < qy_config.instances && !qy_config.looks; i++) qy_leave(&qy_instances[i]);
    r->freed = qy_rss_now().anonymous;
    if (qy_config.idle_s > 0) {
        idle(qy_config.idle_s);
        r->freed_idle = qy_rss_now().anonymous;
    }
    r->peak = peak ? peak : qy_board->peak_anonymous;
    r->peak_exact = peak != 0;
    if (r->peak < r->end) r->peak = r->end;
}

static qy_results_t results;
static qy_verdict_t verdict;

static void report_after_all(void) {
    results.after = qy_rss_anonymous();
    qy_report(&results, &verdict);
}

int main(int argc, char **argv) {
    // Who wants the report is gone: so is the reason to go on.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    read_options(argc, argv);
    qy_load(qy_config.plan, &qy_plan);
    qy_check(&qy_plan);
    qy_config.spin = spins();
    qy_wrong = qy_own(1, sizeof *qy_wrong);
    qy_prepare();
    qy_looks_prepare();
    qy_sampler_start();
    perform(&results);
    if (qy_config.classic) {
        uint64_t wall = 0;
        for (uint32_t i = 0; i < qy_config.instances; i++)
            wall = qy_instances[i].play_ns > wall ? qy_instances[i].play_ns : wall;
        qy_classic_end(wall);
    }
    verdict = qy_verdict();
    if (qy_config.classic) qy_classic_verdict(&verdict);
    if (qy_config.report && !qy_late_call(report_after_all)) qy_report(&results, &verdict);
    return verdict.wrong || verdict.misaligned ? QY_WRONG : QY_DONE;
}
