// SPDX-License-Identifier: MIT
// report.c: all pools as a table, and those that are left when the process ends. Allocates nothing.
#include "os/os.h"
#include "pool/observe.h"
#include "pool/pool.h"
#include "rt/json.h"

typedef struct report_out {
    int fd;
    bool json, failed;
    unsigned pools;
    size_t held, used;
    size_t at;
    char text[2048];
} report_out_t;

static void report_flush(report_out_t *o) {
    if (o->at && !qy_os_write(o->fd, o->text, o->at)) o->failed = true;
    o->at = 0;
}

// Names come from the program: what would break a line or a JSON string becomes '?'. They may be no UTF-8, or cut
// within a character.
static const char *clean(const char *name, char buf[QY_POOL_NAME_BYTES]) {
    bool utf8 = qy_json_is_utf8(name);
    size_t n = 0;
    for (; name[n] && n < QY_POOL_NAME_BYTES - 1; n++) {
        unsigned char c = (unsigned char)name[n];
        bool breaks = c < ' ' || c == '"' || c == '\\' || c == 0x7f || (c > 0x7f && !utf8);
        buf[n] = name[n];
        if (breaks) buf[n] = '?';
    }
    buf[n] = '\0';
    return buf;
}

// Columns by hand: the formatter has no widths.
static void pad(report_out_t *o, size_t from, size_t width) {
    while (o->at - from < width && o->at < sizeof o->text - 1) o->text[o->at++] = ' ';
}
static void cell(report_out_t *o, const char *format, const char *text, uint64_t number, size_t width) {
    size_t from = o->at;
    o->at += text ? qy_format(o->text + o->at, sizeof o->text - o->at, format, text)
                  : qy_format(o->text + o->at, sizeof o->text - o->at, format, number);
    pad(o, from, width);
}

static int row(quarry_pool_t *pool, void *arg) {
    report_out_t *o = arg;
    quarry_pool_stats_t s;
    char name[QY_POOL_NAME_BYTES];
    quarry_pool_stats(pool, &s);
    if (o->json) {
        o->at += qy_format(o->text + o->at, sizeof o->text - o->at,
            "%s{\"kind\":\"%s\",\"name\":\"%s\",\"held_bytes\":%z,\"used_bytes\":%z,\"peak_held_bytes\":%z,\"limit\":%"
            "z,\"requested_bytes\":%l,"
            "\"allocs\":%l,\"frees\":%l,\"resizes\":%l,\"slow_calls\":%l,\"chunk_gets\":%l,\"chunk_puts\":%l,\"slow_"
            "ns\":%l}",
            o->pools ? "," : "", s.kind, clean(s.name, name), s.held_bytes, s.used_bytes, s.peak_held_bytes, s.limit,
            s.requested_bytes, s.allocs, s.frees, s.resizes, s.slow_calls, s.chunk_gets, s.chunk_puts, s.slow_ns);
    } else {
        cell(o, "%s", s.kind, 0, 9);
        cell(o, "%s", clean(s.name, name), 0, 33);
        cell(o, "%l", NULL, s.held_bytes, 15);
        cell(o, "%l", NULL, s.used_bytes, 15);
        cell(o, "%l", NULL, s.peak_held_bytes, 15);
        cell(o, "%l", NULL, s.slow_calls, 12);
        cell(o, "%l\n", NULL, s.chunk_gets, 0);
    }
    o->pools++;
    o->held += s.held_bytes;
    o->used += s.used_bytes;
    report_flush(o);
    return o->failed;
}

int quarry_pools_write(int fd, int as_json) {
    report_out_t o = {.fd = fd, .json = as_json};
    if (as_json) o.at = qy_format(o.text, sizeof o.text, "{\"schema\":\"quarry-pools/1\",\"pools\":[");
    else
        o.at = qy_format(o.text, sizeof o.text,
            "kind     name                             held           used           peak held      slow calls  "
            "chunks\n");
    report_flush(&o);
    quarry_pools_walk(row, &o);
    if (as_json) o.at = qy_format(o.text, sizeof o.text, "],\"held_bytes\":%z,\"used_bytes\":%z}\n", o.held, o.used);
    else {
        cell(&o, "%s", "total", 0, 9);
        cell(&o, "%l pool%S", NULL, o.pools, 33);
        cell(&o, "%l", NULL, o.held, 15);
        cell(&o, "%l\n", NULL, o.used, 0);
    }
    report_flush(&o);
    return o.failed ? -1 : 0;
}

// ---- at the end ---------------------------------------------------------------------------------------

#define NAMED 5

static int name_left(quarry_pool_t *pool, void *arg) {
    report_out_t *o = arg;
    char name[QY_POOL_NAME_BYTES];
    quarry_pool_stats_t s;
    quarry_pool_stats(pool, &s);
    if (o->pools++ < NAMED)
        o->at += qy_format(o->text + o->at, sizeof o->text - o->at, "%s%s \"%s\" (%z byte%S used)",
            o->pools > 1 ? ", " : "", s.kind, clean(s.name, name), s.used_bytes);
    return 0;
}

void qy_pools_report_left(void) {
    report_out_t o = {.fd = 2};
    quarry_pools_walk(name_left, &o);
    if (o.pools) qy_warn("%u pool%S left at the end: %s%s", o.pools, o.text, o.pools > NAMED ? ", ..." : "");
}
