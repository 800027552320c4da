// SPDX-License-Identifier: MIT
// modules.c: see modules.h.
#include "trace/modules.h"

#include <string.h>

#include "os/loaded.h"
#include "os/os.h"
#include "os/process.h"
#include "rt/lock.h"
#include "trace/json.h"
#include "trace/stacks.h"

#define TEXT_BYTES 26000  // a path of which each character takes six, and the segments
#define KNOWN_FIRST ((size_t)512)

// What has been told. Of the thread that has `lock`, which is only ever tried.
typedef struct known {
    uintptr_t base;
    uint64_t mark;
    bool seen;  // in this round
} known_t;

static struct modules {
    qy_lock_t lock;
    uint64_t loads, unloads;
    known_t *known;
    size_t count, room;
    char text[TEXT_BYTES], path[4096];
} modules;

static void number_list(qy_json_t *j, const qy_os_segment_t *s) {
    qy_json_raw(j, "[");
    qy_json_number(j, s->address);
    qy_json_raw(j, ",");
    qy_json_number(j, s->bytes);
    qy_json_raw(j, ",");
    qy_json_number(j, s->flags);
    qy_json_raw(j, "]");
}

static size_t modules_describe(const qy_os_loaded_t *l) {
    qy_json_t j;
    qy_json_begin(&j, modules.text, sizeof modules.text);
    const char *path = l->path;
    if (!*path && qy_os_program_path(modules.path, sizeof modules.path)) path = modules.path;
    qy_json_raw(&j, "{");
    qy_json_key(&j, "path");
    qy_json_string(&j, path, SIZE_MAX);
    qy_json_key(&j, "build_id");
    qy_json_raw(&j, "\"");
    for (unsigned i = 0; i < l->id_bytes; i++) {
        char hex[3] = {"0123456789abcdef"[l->id[i] >> 4], "0123456789abcdef"[l->id[i] & 15], 0};
        qy_json_raw(&j, hex);
    }
    qy_json_raw(&j, "\"");
    qy_json_key(&j, "segments");
    qy_json_raw(&j, "[");
    for (unsigned i = 0; i < l->segments; i++) {
        if (i) qy_json_raw(&j, ",");
        number_list(&j, &l->segment[i]);
    }
    qy_json_raw(&j, "]}");
    return qy_json_length(&j);
}

static bool have_room(void) {
    if (modules.count < modules.room) return true;
    size_t room = modules.room ? modules.room * 2 : KNOWN_FIRST, page = qy_os_page_size();
    size_t bytes = (room * sizeof(known_t) + page - 1) / page * page,
           old = (modules.room * sizeof(known_t) + page - 1) / page * page;
    known_t *known = qy_os_map(bytes, page, NULL);
    if (!known) return false;
    if (modules.count) memcpy(known, modules.known, modules.count * sizeof *known);
    if (modules.known) qy_os_unmap(modules.known, old);
    modules.known = known;
    modules.room = room;
    return true;
}

// Another file may lie where one was unloaded.
static uint64_t mark_of(const qy_os_loaded_t *l) {
    return qy_trace_sum(l->path, strlen(l->path)) ^ qy_trace_sum(l->id, l->id_bytes);
}

static known_t *modules_find(const qy_os_loaded_t *l) {
    uint64_t mark = mark_of(l);
    for (size_t i = 0; i < modules.count; i++)
        if (modules.known[i].base == l->base && modules.known[i].mark == mark) return &modules.known[i];
    return NULL;
}

static void modules_see(const qy_os_loaded_t *l, void *arg) {
    (void)arg;
    known_t *k = modules_find(l);
    if (k) k->seen = true;
}

static void tell_new(const qy_os_loaded_t *l, void *arg) {
    qy_writer_t *w = arg;
    if (modules_find(l) || !l->segments || !have_room()) return;
    modules.known[modules.count++] = (known_t){l->base, mark_of(l), true};
    uint64_t base = l->base;
    qy_write_text(w, QY_OP_MODULE, QY_MODULE_LOADED, w->time, &base, modules.text, modules_describe(l));
}

// What is gone is told first: something else may be in its place.
static void scan(qy_writer_t *w) {
    for (size_t i = 0; i < modules.count; i++) modules.known[i].seen = false;
    qy_os_each_loaded(modules_see, NULL);
    for (size_t i = 0; i < modules.count;) {
        uint64_t base = modules.known[i].base;
        if (modules.known[i].seen) {
            i++;
            continue;
        }
        qy_write_text(w, QY_OP_MODULE, QY_MODULE_UNLOADED, w->time, &base, "", 0);
        modules.known[i] = modules.known[--modules.count];
    }
    qy_os_each_loaded(tell_new, w);
}

void qy_modules_write(qy_writer_t *w) {
    uint64_t loads, unloads;
    if (w->scanning || !qy_lock_try(&modules.lock)) return;
    w->scanning = true;
    qy_os_loaded_changes(&loads, &unloads);
    if (loads != modules.loads || unloads != modules.unloads) {
        if (unloads != modules.unloads) qy_stacks_modules_changed();
        modules.loads = loads;
        modules.unloads = unloads;
        scan(w);
    }
    w->scanning = false;
    qy_lock_drop(&modules.lock);
}

void qy_modules_restart(void) {
    qy_lock_reset(&modules.lock);
    modules.loads = modules.unloads = 0;
    modules.count = 0;
}

void qy_modules_freeze(void) {
    qy_lock_fork(&modules.lock, 0);
}
void qy_modules_thaw(void) {
    qy_lock_fork(&modules.lock, 1);
}
