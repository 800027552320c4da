// SPDX-License-Identifier: MIT
// leak_report.c: see leak_report.h.
#include "check/leak_report.h"

#include "check/frames.h"
#include "check/options.h"
#include "check/pool_blocks.h"
#include "check/report.h"
#include "rt/diag.h"

static const char *const kind_names[QY_LEAK_KINDS] = {[QY_LEAK_DEFINITE] = "leak-definite",
    [QY_LEAK_INDIRECT] = "leak-indirect",
    [QY_LEAK_IS_POSSIBLE] = "leak-possible",
    [QY_LEAK_REACHABLE] = "leak-reachable"};

typedef struct leak_line {
    const char *kind;
    const qy_leak_site_t *site;
    const qy_leak_scan_t *scan;
    const qy_leak_told_t *told;
    bool grows;
    uint64_t before;
} leak_line_t;

static void fill_leak(qy_json_t *j, void *arg) {
    const leak_line_t *l = arg;
    const qy_leak_site_t *s = l->site;
    qy_check_put_text(j, "kind", l->kind);
    qy_check_put_u64(j, "bytes", s->bytes);
    qy_check_put_u64(j, "blocks", s->blocks);
    qy_check_put_u64(j, "indirect_bytes", s->held_bytes);
    qy_check_put_u64(j, "indirect_blocks", s->held_blocks);
    if (l->grows) qy_check_put_u64(j, "bytes_before", l->before);
    qy_check_put_u64(j, "scan", l->told->number);
    qy_check_put_address(j, "example", s->example);
    qy_check_put_text(j, "family", qy_check_family_name(s->family));
    const char *pool_kind, *pool = qy_check_pool_name(s->pool, &pool_kind);
    qy_check_put_text(j, "pool", pool);
    qy_check_put_text(j, "pool_kind", pool_kind);
    qy_check_put_stack(j, s->stack);
}

static void fill_scan(qy_json_t *j, void *arg) {
    const leak_line_t *l = arg;
    qy_check_put_u64(j, "number", l->told->number);
    qy_check_put_text(j, "at", l->told->at);
    qy_check_put_u64(j, "pause_ns", l->told->pause_ns);
    qy_check_put_u64(j, "total_ns", l->told->total_ns);
    qy_check_put_u64(j, "roots_bytes", l->scan->roots_bytes);
    qy_check_put_u64(j, "heap_bytes", l->scan->heap_bytes);
    qy_json_key(j, "reachable");
    qy_json_raw(j, "{");
    qy_check_put_u64(j, "bytes", l->scan->bytes[QY_LEAK_REACHABLE]);
    qy_check_put_u64(j, "blocks", l->scan->blocks[QY_LEAK_REACHABLE]);
    qy_json_raw(j, "}");
    qy_check_put_text(j, "incomplete", l->scan->incomplete);
}

static void leak_text(const leak_line_t *l) {
    char text[512];
    const qy_leak_site_t *s = l->site;
    size_t n = qy_format(text, sizeof text, "quarry check: %s: %l byte%S in %l block%S", l->kind, s->bytes, s->blocks);
    const char *pool_kind, *pool = qy_check_pool_name(s->pool, &pool_kind);
    if (pool) n += qy_format(text + n, sizeof text - n, " of the %s pool \"%s\"", pool_kind, pool);
    if (s->held_blocks)
        n += qy_format(
            text + n, sizeof text - n, ", which hold %l byte%S in %l block%S", s->held_bytes, s->held_blocks);
    if (l->grows) n += qy_format(text + n, sizeof text - n, ", %l byte%S two scans before", l->before);
    n += qy_format(text + n, sizeof text - n, "\n");
    qy_os_write(2, text, n);
    qy_check_text_stack("allocated at", l->site->stack);
}

static void leak_tell(const leak_line_t *l) {
    if (!qy_check_report_line("leak", l->site->stack, fill_leak, (void *)l)) leak_text(l);
}

void qy_leak_report_growing(const qy_leak_site_t *site, uint64_t before, const qy_leak_told_t *told) {
    leak_tell(&(leak_line_t){.kind = "leak-growing", .site = site, .told = told, .grows = true, .before = before});
}

void qy_leak_report(const qy_leak_scan_t *scan, const qy_leak_told_t *told) {
    for (size_t i = 0; i < scan->sites.entries && scan->sites.table[i].used; i++) {
        const qy_leak_site_t *s = &scan->sites.table[i];
        if (s->kind == QY_LEAK_REACHABLE && !told->show_reachable) continue;
        leak_tell(&(leak_line_t){.kind = kind_names[s->kind], .site = s, .told = told});
    }
    leak_line_t l = {.scan = scan, .told = told};
    if (qy_check_report_line("scan", 0, fill_scan, &l) || !scan->incomplete) return;
    char text[256];
    qy_os_write(2, text, qy_format(text, sizeof text, "quarry check: leaks: %s\n", scan->incomplete));
}
