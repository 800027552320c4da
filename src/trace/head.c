// SPDX-License-Identifier: MIT
// head.c: what the head and the end of a trace say in JSON.
#include "base/num.h"
#include "os/loaded.h"
#include "os/maps.h"
#include "os/process.h"
#include "rt/json.h"
#include "trace/record.h"

#if defined(__x86_64__)
#define MACHINE "x86_64"
#elif defined(__aarch64__)
#define MACHINE "aarch64"
#else
#define MACHINE "other"
#endif

static void text(qy_json_t *j, const char *key, const char *value) {
    qy_json_key(j, key);
    qy_json_string(j, value, SIZE_MAX);
}

static void head_number(qy_json_t *j, const char *key, uint64_t value) {
    qy_json_key(j, key);
    qy_json_number(j, value);
}

// Arguments, as far as they fit; the rest of the head must, too.
#define KEPT 512
#define COMMAND_MOST 16000

static void command(qy_json_t *j) {
    static char arguments[8192];  // one process, one start
    size_t bytes = qy_os_command_line(arguments, sizeof arguments);
    char *end = j->end;
    bool cut = bytes + 1 == sizeof arguments;
    if (end - j->at < 2 * KEPT) {
        qy_json_raw(j, ",\"command_cut\":true");
        return;
    }
    qy_json_key(j, "command");
    qy_json_raw(j, "[");
    j->end = j->at + qy_min((size_t)(end - j->at) - KEPT, COMMAND_MOST);
    for (size_t at = 0; at < bytes;) {
        size_t n = 0;
        while (at + n < bytes && arguments[at + n]) n++;
        if ((size_t)(j->end - j->at) < 6 * n + 8) {  // escaped, it may be six times as long
            cut = true;
            break;
        }
        if (at) qy_json_raw(j, ",");
        qy_json_string(j, arguments + at, n);
        at += n + 1;
    }
    j->end = end;
    qy_json_raw(j, "]");
    if (cut) qy_json_raw(j, ",\"command_cut\":true");
}

static void first_address(const qy_os_loaded_t *l, void *arg) {
    uintptr_t *at = arg;
    if (!*at && l->segments) *at = l->base + l->segment[0].address;
}

// Where the dynamic linker was told to run the program, the kernel takes it for the program. The program itself is the
// first of what is loaded.
static void find_program(char *path, size_t bytes) {
    uintptr_t at = 0;
    qy_os_mapped_t mapped;
    qy_os_each_loaded(first_address, &at);
    qy_os_maps_t maps = qy_os_maps_read();
    if (!qy_os_maps_find(&maps, at, path, bytes, &mapped)) qy_os_program_path(path, bytes);
    qy_os_maps_free(&maps);
}

size_t qy_record_head_text(char *buf, size_t bytes) {
    static const char *const stacks[] = {[QY_STACKS_NONE] = "none", [QY_STACKS_FP] = "fp", [QY_STACKS_CFI] = "cfi"};
    static char path[4096];
    uint64_t ticks = 0, ns = 0;
    qy_json_t j;
    qy_os_ticks_pair(&ticks, &ns);
    find_program(path, sizeof path);
    qy_json_begin(&j, buf, bytes);
    qy_json_raw(&j, "{");
    text(&j, "format", "quarry-trace/1");
    head_number(&j, "process", (uint64_t)qy_record.pid);
    head_number(&j, "parent", (uint64_t)qy_os_parent_id());
    text(&j, "program", path);
    head_number(&j, "grain", qy_max(QY_TRACE_GRAIN, qy_os_page_size()));
    head_number(&j, "page", qy_os_page_size());
    text(&j, "clock", qy_os_ticks_name());
    head_number(&j, "ticks_per_second", qy_ticks.per_second);
    head_number(&j, "start_ticks", ticks);
    head_number(&j, "start_monotonic_ns", ns);
    head_number(&j, "start_unix_ns", qy_os_now_unix_ns());
    text(&j, "malloc", qy_record.malloc_library ? qy_record.malloc_library : "");
    text(&j, "stacks", stacks[qy_stacks_mode()]);
    head_number(&j, "sample", qy_record.config.sample);
    head_number(&j, "pointer", sizeof(void *));
    text(&j, "writer", "libquarry-record " QY_VERSION);
    text(&j, "machine", MACHINE);
    command(&j);
    qy_json_raw(&j, "}");
    return qy_json_length(&j);
}

size_t qy_record_end_text(char *buf, size_t bytes, const char *reason, uint64_t events, uint64_t lost, uint32_t threads,
    uint64_t file_bytes) {
    uint64_t ticks = 0, ns = 0;
    qy_json_t j;
    qy_os_ticks_pair(&ticks, &ns);
    qy_json_begin(&j, buf, bytes);
    qy_json_raw(&j, "{");
    text(&j, "reason", reason);
    head_number(&j, "end_ticks", ticks);
    head_number(&j, "end_monotonic_ns", ns);
    head_number(&j, "events", events);
    head_number(&j, "lost", lost);
    head_number(&j, "threads", threads);
    head_number(&j, "bytes", file_bytes);
    qy_json_raw(&j, "}");
    return qy_json_length(&j);
}
