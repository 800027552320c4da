// SPDX-License-Identifier: MIT
// report.c: what was measured, as one JSON object
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "replay.h"

typedef unsigned long long ull;

static const char *const kinds[QY_PLAN_KINDS] = {
    "all", "malloc", "calloc", "memalign", "realloc", "free", "free_null", "stats"};

static void merge(unsigned kind, qy_histogram_t *sum) {
    for (uint32_t s = 0; s < qy_seat_count; s++) {
        const qy_histogram_t *h = &qy_seats[s].histograms[kind];
        sum->count += h->count;
        sum->sum += h->sum;
        if (h->max > sum->max) sum->max = h->max;
        for (unsigned b = 0; b < QY_HISTOGRAM_BUCKETS; b++) sum->buckets[b] += h->buckets[b];
    }
}

// Buckets that are not empty, as [nanoseconds at the lower end, calls].
static void buckets(qy_out_t *out, const qy_histogram_t *h) {
    const char *comma = "";
    qy_print(out, ",\"buckets\":[");
    for (unsigned b = 0; b < QY_HISTOGRAM_BUCKETS; b++) {
        if (!h->buckets[b]) continue;
        unsigned shift = b >> (QY_HISTOGRAM_SUB + 1) ? (b >> QY_HISTOGRAM_SUB) - 1 : 0;
        double low = (double)((uint64_t)(b - (shift << QY_HISTOGRAM_SUB)) << shift) * qy_ns_per_tick;
        qy_print(out, "%s[%.2f,%llu]", comma, low, (ull)h->buckets[b]);
        comma = ",";
    }
    qy_print(out, "]");
}

static void operations(qy_out_t *out) {
    qy_print(out, "\"operations\":{");
    for (unsigned k = 1; k < QY_PLAN_KINDS; k++) {
        uint64_t failed = 0, count = qy_plan.head->operations[k] * qy_config.instances * qy_config.repeats;
        for (uint32_t s = 0; s < qy_seat_count; s++) failed += qy_seats[s].failed[k];
        qy_print(out, "%s\"%s\":{\"count\":%llu,\"failed\":%llu", k > 1 ? "," : "", kinds[k], (ull)count, (ull)failed);
        if (qy_config.timed && count) {
            qy_histogram_t *h = qy_own(1, sizeof *h);
            merge(k, h);
            qy_print(out,
                ",\"timed\":%llu,\"sum_ns\":%.0f,\"p50_ns\":%.2f,\"p90_ns\":%.2f,\"p99_ns\":%.2f,\"p999_ns\":%.2f,"
                "\"max_ns\":%.2f",
                (ull)h->count, (double)h->sum * qy_ns_per_tick, qy_percentile_ns(h, 0.5), qy_percentile_ns(h, 0.9),
                qy_percentile_ns(h, 0.99), qy_percentile_ns(h, 0.999), (double)h->max * qy_ns_per_tick);
            buckets(out, h);
            qy_disown(h, 1, sizeof *h);
        }
        qy_print(out, "}");
    }
    qy_print(out, "},");
}

static void times(qy_out_t *out, const qy_results_t *r) {
    uint64_t wall = 0, busy = 0, waited = 0, late = 0, played = 0;
    for (uint32_t i = 0; i < qy_config.instances; i++) {
        if (qy_instances[i].play_ns > wall) wall = qy_instances[i].play_ns;
    }
    for (uint32_t s = 0; s < qy_seat_count; s++) {
        busy += qy_seats[s].busy_ns;
        waited += qy_seats[s].waited_ns;
        played += atomic_load(&qy_seats[s].operations);
        if (qy_seats[s].late_ns > late) late = qy_seats[s].late_ns;
    }
    qy_print(out, "\"played\":%llu,\"wall_ns\":%llu,\"busy_ns\":%llu,\"waited_ns\":%llu,\"late_ns\":%llu,", (ull)played,
        (ull)wall, (ull)busy, (ull)waited, (ull)late);
    qy_print(out,
        "\"user_ns\":%llu,\"system_ns\":%llu,\"minor_faults\":%llu,\"major_faults\":%llu,\"voluntary_switches\":%llu,"
        "\"involuntary_switches\":%llu,",
        (ull)r->used.user_ns, (ull)r->used.system_ns, (ull)r->used.minor_faults, (ull)r->used.major_faults,
        (ull)r->used.voluntary, (ull)r->used.involuntary);
    qy_print(out, "\"repeats_ns\":[");
    for (uint32_t n = 0; n < qy_config.repeats && n < QY_REPEATS_TOLD; n++)
        qy_print(out, "%s%llu", n ? "," : "", (ull)qy_instances[0].repeat_ns[n]);
    qy_print(out, "],\"timer\":{\"clock\":\"%s\",\"ns_per_tick\":%.6f,\"cost_ns\":%.2f},", QY_CLOCK_NAME,
        qy_ns_per_tick, (double)qy_timer_ticks * qy_ns_per_tick);
}

// A path that would need more than quotes is left out, and so is one for which qy_print() has no room.
static void mapping(const char *path, uint64_t bytes, void *out) {
    if (strlen(path) > 400) return;
    for (const char *at = path; *at; at++) {
        if ((unsigned char)*at < ' ' || *at == '"' || *at == '\\') return;
    }
    qy_print(out, "[\"%s\",%llu],", path, (ull)bytes);
}

static void looks(qy_out_t *out, const qy_results_t *r) {
    if (!qy_looks) {
        qy_print(out, "\"looks\":null,");
        return;
    }
    uint64_t usable = 0;
    for (uint32_t s = 0; s < qy_seat_count; s++) usable += qy_seats[s].usable;
    qy_print(out, "\"looks\":{\"usable_bytes\":%llu,", (ull)usable);
    if (r->after) qy_print(out, "\"after\":%llu,", (ull)r->after);
    qy_print(out, "\"files\":[");
    qy_rss_files(mapping, out);
    qy_print(out, "[\"\",0]],\"rows\":[");
    for (uint32_t i = 0; i < qy_plan.looks; i++)
        qy_print(out, "%s[%llu,%llu]", i ? "," : "", (ull)qy_looks[i].anonymous, (ull)qy_looks[i].peak);
    qy_print(out, "]},");
}

static void memory(qy_out_t *out, const qy_results_t *r) {
    uint64_t blocks = 0, bytes = 0, ns = 0;
    for (uint32_t i = 0; i < qy_config.instances; i++) {
        blocks += qy_instances[i].left_blocks;
        bytes += qy_instances[i].left_bytes;
        ns += qy_instances[i].left_ns;
    }
    qy_print(out, "\"left\":{\"blocks\":%llu,\"bytes\":%llu,\"free_ns\":%llu},", (ull)blocks, (ull)bytes, (ull)ns);
    qy_print(out,
        "\"rss\":{\"own\":%llu,\"start\":%llu,\"peak\":%llu,\"peak_from\":\"%s\",\"end\":%llu,\"freed\":%llu,",
        (ull)r->own, (ull)r->start, (ull)r->peak, r->peak_exact ? "kernel" : "samples", (ull)r->end, (ull)r->freed);
    if (qy_config.idle_s > 0)
        qy_print(out, "\"end_idle\":%llu,\"freed_idle\":%llu},", (ull)r->end_idle, (ull)r->freed_idle);
    else qy_print(out, "\"end_idle\":null,\"freed_idle\":null},");
    looks(out, r);
    const qy_instance_t *first = &qy_instances[0];
    if (first->curve) {
        qy_print(out, "\"curve\":{\"step\":%llu,\"peak\":%llu,\"end\":%llu,\"live\":[", (ull)qy_config.curve_step,
            (ull)first->exact_peak, (ull)first->exact_live);
        for (uint64_t i = 0; i < first->curve_length; i++) qy_print(out, "%s%llu", i ? "," : "", (ull)first->curve[i]);
        qy_print(out, "]},");
    } else {
        qy_print(out, "\"curve\":null,");
    }
    qy_print(out,
        "\"samples\":{\"interval_ns\":%llu,\"peak_anonymous\":%llu,\"peak_live\":%lld,\"columns\":[\"ns\","
        "\"anonymous\",\"live\",\"operations\"],\"rows\":[",
        (ull)qy_board->interval_ns, (ull)qy_board->peak_anonymous, (long long)qy_board->peak_live);
    for (uint32_t i = 0; i < qy_board->count; i++) {
        const qy_sample_t *s = &qy_board->samples[i];
        qy_print(out, "%s[%llu,%llu,%lld,%llu]", i ? "," : "", (ull)s->ns, (ull)s->anonymous, (long long)s->live,
            (ull)s->operations);
    }
    qy_print(out, "]}");
}

static void verified(qy_out_t *out, const qy_verdict_t *v) {
    qy_print(out, ",\"verify\":{\"checked\":%llu,\"wrong\":%llu,\"misaligned\":%llu,\"first\":", (ull)v->checked,
        (ull)v->wrong, (ull)v->misaligned);
    const qy_wrong_t *w = qy_wrong;
    if (v->wrong)
        qy_print(out,
            "{\"thread\":%lld,\"slot\":%u,\"size\":%llu,\"offset\":%llu,\"expected\":\"%016llx\",\"seen\":\"%016llx\"}"
            "}",
            w->thread == QY_NONE ? -1ll : (long long)w->thread, w->slot, (ull)w->size, (ull)w->offset, (ull)w->expected,
            (ull)w->seen);
    else qy_print(out, "null}");
}

void qy_report(const qy_results_t *results, const qy_verdict_t *verdict) {
    static qy_out_t out;
    out.fd = open(qy_config.report, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (out.fd < 0) qy_fail(QY_SYSTEM, "%s: %s", qy_config.report, strerror(errno));
    qy_print(&out, "{\"format\":\"quarry-replayer/1\",\"threads\":%u,\"alive\":%u,\"slots\":%u,\"strict\":%s,",
        qy_plan.head->threads, qy_plan.head->alive, qy_plan.head->slots, qy_plan.strict ? "true" : "false");
    times(&out, results);
    operations(&out);
    memory(&out, results);
    if (qy_config.verify) verified(&out, verdict);
    else qy_print(&out, ",\"verify\":null");
    qy_print(&out, "}\n");
    qy_flush(&out);
    if (close(out.fd)) qy_fail(QY_SYSTEM, "%s: %s", qy_config.report, strerror(errno));
}
