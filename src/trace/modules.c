// SPDX-License-Identifier: MIT
// modules.c: see modules.h.
#include "trace/modules.h"

#include <string.h>

#include "base/num.h"
#include "os/maps.h"
#include "os/process.h"
#include "rt/json.h"
#include "stacks/modules.h"
#include "stacks/stacks.h"
#include "trace/writer.h"

#define PATH_BYTES 4096
#define TEXT_BYTES 34500  // a path of which each character takes six, or eight in two keys, and the segments

// Of the thread that looks (stacks/modules.h).
static struct {
    uint64_t told;      // time of the last record
    uint32_t teller;    // the thread that wrote it
    qy_os_maps_t maps;  // while modules are told
    char text[TEXT_BYTES], path[PATH_BYTES];
} module_records;

static void json_segments(qy_json_t *j, const qy_os_loaded_t *l) {
    qy_json_key(j, "segments");
    qy_json_raw(j, "[");
    for (unsigned i = 0; i < l->segments; i++) {
        qy_json_raw(j, i ? ",[" : "[");
        qy_json_number(j, l->segment[i].address);
        qy_json_raw(j, ",");
        qy_json_number(j, l->segment[i].bytes);
        qy_json_raw(j, ",");
        qy_json_number(j, l->segment[i].flags);
        qy_json_raw(j, "]");
    }
    qy_json_raw(j, "]");
}

static void json_number(qy_json_t *j, const char *key, uint64_t number) {
    qy_json_key(j, key);
    qy_json_number(j, number);
}

// The path as the kernel has it; that of the dynamic linker where that is none (the vdso), or where /proc is missing.
static const char *path_of_loaded(const qy_os_loaded_t *l, qy_os_mapped_t *ret) {
    if (qy_os_maps_find(&module_records.maps, l->base + l->segment[0].address, module_records.path,
            sizeof module_records.path, ret))
        return module_records.path;
    if (!*l->path && qy_os_program_path(module_records.path, sizeof module_records.path)) return module_records.path;
    return l->path;
}

static size_t modules_describe(const qy_os_loaded_t *l) {
    qy_os_mapped_t mapped;
    qy_json_t j;
    const char *path = path_of_loaded(l, &mapped);
    qy_json_begin(&j, module_records.text, sizeof module_records.text);
    qy_json_raw(&j, "{");
    qy_json_key(&j, "path");
    qy_json_string(&j, path, SIZE_MAX);
    if (!qy_json_is_utf8(path)) {
        qy_json_key(&j, "path_hex");
        qy_json_hex(&j, path, strlen(path));
    }
    qy_json_key(&j, "build_id");
    qy_json_hex(&j, l->id, l->id_bytes);
    json_segments(&j, l);
    if (mapped.bytes) {
        json_number(&j, "bytes", mapped.bytes);
        json_number(&j, "modified_ns", mapped.modified_ns);
    }
    json_number(&j, "nodes", qy_stacks_seen());
    qy_json_raw(&j, "}");
    return qy_json_length(&j);
}

// The time of a record. A thread's own may be older than that of a record of another thread, and then a file would be
// gone before it came. Of equal times readers take first what a thread with a lower number did.
static uint64_t next_time(const qy_writer_t *w) {
    module_records.told = qy_max(module_records.told + (module_records.teller != w->thread), w->time);
    module_records.teller = w->thread;
    return module_records.told;
}

static bool *trace_looking(void *arg) { return &((qy_writer_t *)arg)->scanning; }

static void trace_loaded(void *arg, const qy_os_loaded_t *l) {
    qy_writer_t *w = arg;
    if (!module_records.maps.text) module_records.maps = qy_os_maps_read();
    uint64_t base = l->base;
    qy_write_text(
        w, QY_OP_MODULE, QY_MODULE_LOADED, next_time(w), &base, module_records.text, modules_describe(l));
}

static void trace_gone(void *arg, uintptr_t at) {
    qy_writer_t *w = arg;
    qy_json_t j;
    uint64_t base = at;
    qy_json_begin(&j, module_records.text, sizeof module_records.text);
    qy_json_raw(&j, "{");
    json_number(&j, "nodes", qy_stacks_ids());
    qy_json_raw(&j, "}");
    qy_write_text(
        w, QY_OP_MODULE, QY_MODULE_UNLOADED, next_time(w), &base, module_records.text, qy_json_length(&j));
}

static void trace_done(void *arg) {
    (void)arg;
    qy_os_maps_free(&module_records.maps);
}

void qy_trace_modules_begin(void) {
    static const qy_modules_teller_t teller = {trace_looking, trace_loaded, trace_gone, trace_done};
    qy_modules_begin(&teller);
}

void qy_trace_modules_restart(void) {
    module_records.told = 0;
    qy_modules_restart();
}
