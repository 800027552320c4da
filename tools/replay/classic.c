// SPDX-License-Identifier: MIT
// classic.c: what the simulator that .ms files come from prints, with times that are not all zero
#include "replay.h"

#include "clock.h"

typedef struct totals {
    uint64_t count, ticks;
} totals_t;

static totals_t *before;  // of each instance and kind, at the end of the repeat before

#define MS(ns) (unsigned long long)(ns) / 1000000, (unsigned long long)(ns) % 1000000
#define MS_FORMAT "%llu.%06llums"

static uint64_t ns_of(uint64_t ticks) { return (uint64_t)((double)ticks * qy_ns_per_tick); }

void qy_classic_start(void) {
    before = qy_own(qy_config.instances, QY_PLAN_KINDS * sizeof *before);
    qy_calibrate_end();  // times are printed on the way
    if (qy_config.instances == 1) return;
    qy_out_t out = {.fd = 1};
    qy_print(&out, "starting %u threads\n", qy_config.instances);
    qy_flush(&out);
}

// Lines of several threads are told apart by the number before them.
static void begin_line(qy_out_t *out, const qy_instance_t *instance) {
    if (qy_config.instances > 1) qy_print(out, "%u: ", instance->number + 1);
}

void qy_classic_call(qy_instance_t *instance, unsigned kind, uint32_t slot, void *p, uint64_t size, uint64_t ticks) {
    static const char *const names[] = {"", "malloc", "calloc", "memalign", "realloc", "free", "free"};
    uint64_t ns = ns_of(ticks > qy_timer_ticks ? ticks - qy_timer_ticks : 0);
    qy_out_t out = {.fd = 1};
    begin_line(&out, instance);
    if (kind == QY_PLAN_FREE_NULL) qy_print(&out, "free(NULL)");
    else if (kind == QY_PLAN_FREE) qy_print(&out, "%u %s %p", slot, names[kind], p);
    else qy_print(&out, "%u=%llu %s %p", slot, (unsigned long long)size, names[kind], p);
    qy_print(&out, " " MS_FORMAT "\n", MS(ns));
    qy_flush(&out);
}

void qy_classic_stats(qy_instance_t *instance) {
    if (!qy_config.classic || qy_config.silent) return;
    uint64_t blocks = 0, bytes = 0;
    for (uint32_t s = 0; s < instance->plan->head->slots; s++) {
        if (!instance->slots[s].ptr) continue;
        blocks++;
        bytes += instance->slots[s].size;
    }
    qy_rss_t rss = qy_rss_now();
    qy_out_t out = {.fd = 1};
    begin_line(&out, instance);
    qy_print(&out, "-------- %llu bytes live in %llu blocks, %llu bytes resident\n", (unsigned long long)bytes,
        (unsigned long long)blocks, (unsigned long long)rss.anonymous);
    qy_flush(&out);
}

void qy_classic_repeat(qy_instance_t *instance) {
    if (qy_config.silent) return;
    static const struct {
        unsigned kind, also;
        const char *name;
    } lines[] = {{QY_PLAN_MALLOC, 0, "malloc"}, {QY_PLAN_REALLOC, 0, "realloc"},
        {QY_PLAN_FREE, QY_PLAN_FREE_NULL, "free"}, {QY_PLAN_STATS, 0, "stats"}};
    totals_t now[QY_PLAN_KINDS] = {{0, 0}};
    const qy_seat_t *seats = &qy_seats[instance->number * instance->plan->head->alive];
    for (uint32_t s = 0; s < instance->plan->head->alive; s++) {
        for (unsigned k = 1; k < QY_PLAN_KINDS; k++) {
            now[k].count += seats[s].histograms[k].count;
            now[k].ticks += seats[s].histograms[k].sum;
        }
    }
    totals_t *last = &before[(size_t)instance->number * QY_PLAN_KINDS];
    qy_out_t out = {.fd = 1};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        unsigned k = lines[i].kind, also = lines[i].also;  // kind 0 has no calls
        uint64_t count = now[k].count - last[k].count + now[also].count - last[also].count;
        uint64_t ns = ns_of(now[k].ticks - last[k].ticks + now[also].ticks - last[also].ticks);
        begin_line(&out, instance);
        qy_print(&out, "%s %llu calls took " MS_FORMAT "\n", lines[i].name, (unsigned long long)count, MS(ns));
    }
    qy_flush(&out);
    for (unsigned k = 0; k < QY_PLAN_KINDS; k++) last[k] = now[k];
}

static uint64_t failed_calls(void) {
    uint64_t failed = 0;
    for (uint32_t s = 0; s < qy_seat_count; s++) {
        for (unsigned k = 1; k < QY_PLAN_KINDS; k++) failed += qy_seats[s].failed[k];
    }
    return failed;
}

// What is wrong is said even to who wants to hear little.
void qy_classic_verdict(const qy_verdict_t *verdict) {
    uint64_t failed = failed_calls();
    bool wrong = verdict->wrong || verdict->misaligned;
    qy_out_t out = {.fd = 2};
    if (verdict->wrong)
        qy_print(&out, "wrong contents in %llu blocks, the first in slot %u at byte %llu of %llu\n",
            (unsigned long long)verdict->wrong, qy_wrong->slot, (unsigned long long)qy_wrong->offset,
            (unsigned long long)qy_wrong->size);
    if (verdict->misaligned) qy_print(&out, "%llu blocks misaligned\n", (unsigned long long)verdict->misaligned);
    if (failed) qy_print(&out, "%llu calls returned NULL\n", (unsigned long long)failed);
    qy_flush(&out);
    if (wrong || !qy_config.verify || qy_config.silent) return;
    out.fd = 1;
    qy_print(&out, "contents were compared %llu times and never wrong\n", (unsigned long long)verdict->checked);
    qy_flush(&out);
}

void qy_classic_end(uint64_t ns) {
    qy_out_t out = {.fd = 1};
    qy_print(&out, "memory simulation took " MS_FORMAT "\n", MS(ns));
    qy_flush(&out);
}
