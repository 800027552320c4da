// SPDX-License-Identifier: MIT
// stats.c: statistics that cost the fast path nothing: what is live follows from what the slabs know
// (carved minus at home) minus what the calling thread's own cache holds.
#include "heap/stats.h"

#include "heap/cache.h"
#include "heap/heaps.h"
#include "heap/lists.h"
#include "heap/sums.h"
#include "os/os.h"
#include "pages/map.h"
#include "rt/diag.h"
#include "rt/opts.h"

// `ending`: the process may end within the walk of a heap, or beside one that never ends. Such a heap is left out.
static void add_heap(qy_heap_t *h, bool ending, quarry_stats_t *st, qy_sums_t *sums) {
    if (!ending) qy_heap_lock(h);
    else if (!qy_lock_take_unless_out(&h->lock)) return;
    qy_lists_unpark(h);  // what is parked would count as live
    for (qy_slab_t *s = h->all; s; s = s->all_next) {
        if (s->kind != QY_SPAN_SLAB) continue;
        qy_slab_sums_t has = qy_slab_sums(s);
        st->live_blocks += has.out;
        st->live_bytes += has.out * has.block_bytes;
        st->slab_free_bytes += (has.home - has.loose) * has.block_bytes;
        st->cached_bytes += has.loose * has.block_bytes;
        st->slab_fresh_bytes += has.fresh;
        st->slab_purged_bytes += has.purged * has.block_bytes;
    }
    qy_sums_add_heap(sums, h);
    qy_heap_unlock(h);
}

static void gather_stats(bool ending, quarry_stats_t *ret) {
    quarry_stats_t st = {0};
    qy_sums_t sums = {0};
    if (qy_heap_init()) {
        size_t cached_blocks, cached_bytes = qy_cache_bytes(&cached_blocks);
        st.cached_bytes = cached_bytes;
        for (qy_heap_t *h = qy_heap_first(); h; h = h->next) add_heap(h, ending, &st, &sums);
        qy_sums_set_rest(&sums);
        st.live_blocks += sums.runs + sums.huges - cached_blocks;
        st.live_bytes += sums.run_live_bytes + sums.huge_live_bytes - cached_bytes;
        st.run_slack_bytes = sums.run_slack_bytes;
        st.pages_dirty_bytes = sums.pages_dirty_bytes + sums.huge_cached_bytes;
        st.pages_clean_bytes = sums.pages_clean_bytes;
        st.mapped_bytes = sums.mapped_bytes;
        st.metadata_bytes = sums.metadata_bytes + qy_map_bytes();
        st.heaps = sums.heaps;
        st.heaps_idle = sums.heaps_idle;
        st.slabs = sums.slabs;
        st.runs = sums.runs + sums.huges;
        st.refills = sums.refills;
        st.flushes = sums.flushes;
        st.remote_publishes = sums.remote_publishes;
        st.remote_adoptions = sums.remote_adoptions;
        st.heap_adoptions = sums.heap_adoptions;
        st.slab_steals = sums.slab_steals;
        st.purges = sums.purges;
        st.purged_bytes = sums.purged_bytes;
        st.regret_bytes = sums.regret_bytes;
    }
    *ret = st;
}

void qy_stats_read(quarry_stats_t *ret) { gather_stats(false, ret); }

typedef struct stats_row {
    const char *key, *text;
    size_t offset;
    bool bytes;
} stats_row_t;

#define BYTES(field, text) \
    { #field, text, offsetof(quarry_stats_t, field), true }
#define COUNT(field, text) \
    { #field, text, offsetof(quarry_stats_t, field), false }
static const stats_row_t rows[] = {
    BYTES(mapped_bytes, "open for blocks"),
    BYTES(live_bytes, "  live (and in other threads' caches)"),
    BYTES(cached_bytes, "  in this thread's cache"),
    BYTES(slab_free_bytes, "  free in slabs"),
    BYTES(slab_fresh_bytes, "  never used in slabs"),
    BYTES(run_slack_bytes, "  ends of large blocks"),
    BYTES(pages_dirty_bytes, "  free pages, touched"),
    BYTES(pages_clean_bytes, "  free pages, untouched"),
    BYTES(slab_purged_bytes, "given back inside slabs"),
    BYTES(metadata_bytes, "metadata"),
    COUNT(live_blocks, "live blocks"),
    COUNT(heaps, "heaps"),
    COUNT(heaps_idle, "  idle"),
    COUNT(slabs, "slabs"),
    COUNT(runs, "large blocks"),
    COUNT(refills, "cache refills"),
    COUNT(flushes, "cache flushes"),
    COUNT(remote_publishes, "groups handed over"),
    COUNT(remote_adoptions, "groups taken in"),
    COUNT(heap_adoptions, "heaps taken over"),
    COUNT(slab_steals, "slabs taken over"),
    COUNT(purges, "times memory was given back"),
    BYTES(purged_bytes, "  in total"),
    BYTES(regret_bytes, "  needed again within a second"),
};
#define ROWS (sizeof rows / sizeof rows[0])

static size_t value_of(const quarry_stats_t *st, const stats_row_t *r) {
    return *(const size_t *)((const char *)st + r->offset);
}

// Bytes as KiB, MiB or GiB with one decimal.
static void format_bytes(char *buf, size_t size, size_t bytes) {
    static const char *const unit[] = {"KiB", "MiB", "GiB", "TiB"};
    uint64_t tenths = (uint64_t)bytes * 10 / 1024;
    unsigned u = 0;
    for (; tenths >= 10240 && u < 3; u++) tenths /= 1024;
    qy_format(buf, size, "%l.%l %s", tenths / 10, tenths % 10, unit[u]);
}

static bool write_text(int fd, const quarry_stats_t *st) {
    static const char spaces[] = "                                                ";
    for (size_t i = 0; i < ROWS; i++) {
        char value[32], line[128];
        if (rows[i].bytes) format_bytes(value, sizeof value, value_of(st, &rows[i]));
        else qy_format(value, sizeof value, "%z", value_of(st, &rows[i]));
        size_t n = 0, m = 0;
        while (rows[i].text[n]) n++;
        while (value[m]) m++;
        const char *pad = n + m < 56 ? &spaces[sizeof spaces - 1 - (56 - n - m < 48 ? 56 - n - m : 48)] : "";
        n = qy_format(line, sizeof line, "quarry: %s%s%s\n", rows[i].text, pad, value);
        if (!qy_os_write(fd, line, n)) return false;
    }
    return true;
}

static bool write_json(int fd, const quarry_stats_t *st) {
    // One write, so that lines of several processes in one file do not mix.
    char line[2048], program[128] = "";
    size_t n = qy_format(line, sizeof line, "{\"pid\":%d,\"program\":\"", qy_os_process_id());
    qy_os_program_name(program, sizeof program);
    for (const char *p = program; *p && n < sizeof line - 8; p++) {
        if (*p == '"' || *p == '\\') line[n++] = '\\';
        if ((unsigned char)*p >= 0x20) line[n++] = *p;
    }
    line[n++] = '"';
    for (size_t i = 0; i < ROWS; i++)
        n += qy_format(line + n, sizeof line - n, ",\"%s\":%z", rows[i].key, value_of(st, &rows[i]));
    n += qy_format(line + n, sizeof line - n, "}\n");
    return qy_os_write(fd, line, n);
}

static bool write_stats(bool ending, int fd, bool json) {
    quarry_stats_t st;
    gather_stats(ending, &st);
    return json ? write_json(fd, &st) : write_text(fd, &st);
}

bool qy_stats_write(int fd, bool json) { return write_stats(false, fd, json); }

static QY_COLD void write_at_exit(void) {
    // A copy of the heap beside the one that serves the process has no blocks, and nothing to say.
    if (!qy_heap_first() && !qy_heap_is_ours()) return;
    char path[4096];  // as long as the options (rt/opts.c)
    if (qy_opts_str(qy_opts.stats_file, path, sizeof path)) {
        int fd = qy_os_open_append(path);
        if (fd < 0) {
            qy_warn("cannot write the statistics to %s: check that the folder exists and may be written", path);
            return;
        }
        write_stats(true, fd, true);
        qy_os_close(fd);
    } else {
        write_stats(true, 2, false);
    }
}

void qy_stats_at_exit(void) {
    if (qy_opts.stats_file || qy_opts.stats) write_at_exit();
}
