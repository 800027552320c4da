// SPDX-License-Identifier: MIT
// modules.c: see modules.h.
#include "trace/modules.h"

#include <string.h>

#include "base/num.h"
#include "os/loaded.h"
#include "os/maps.h"
#include "os/os.h"
#include "os/process.h"
#include "rt/lock.h"
#include "trace/json.h"
#include "stacks/own.h"
#include "stacks/stacks.h"

#define PATH_BYTES 4096
#define TEXT_BYTES 34500  // a path of which each character takes six, or eight in two keys, and the segments
#define KNOWN_FIRST ((size_t)512)
// How long a stack waits for a look of another thread, of which the linker's lock may keep that thread.
#define WAIT_NS 1000000u
#define WAITS 20u

// What has been told. Of the thread that has `lock`, which is only ever tried.
typedef struct known {
    uintptr_t base;
    uintptr_t begin, bytes;  // what it takes up, holes included
    uint64_t mark;
    bool seen;  // in this round
} known_t;

static struct modules {
    qy_lock_t lock;
    _Atomic uint64_t loads, unloads;  // as of the last look; written with the lock
    _Atomic uint32_t looks;
    _Atomic uint32_t unsettled;  // unloadings that are over and not told
    uint64_t told;               // time of the last record
    uint32_t teller;             // the thread that wrote it
    known_t *known;
    size_t count, room;
    qy_os_maps_t maps;  // while modules are told
    char text[TEXT_BYTES], path[PATH_BYTES];
} modules;

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
    if (qy_os_maps_find(&modules.maps, l->base + l->segment[0].address, modules.path, sizeof modules.path, ret))
        return modules.path;
    if (!*l->path && qy_os_program_path(modules.path, sizeof modules.path)) return modules.path;
    return l->path;
}

static size_t modules_describe(const qy_os_loaded_t *l) {
    qy_os_mapped_t mapped;
    qy_json_t j;
    const char *path = path_of_loaded(l, &mapped);
    qy_json_begin(&j, modules.text, sizeof modules.text);
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

static bool have_room(void) {
    if (modules.count < modules.room) return true;
    size_t room = modules.room ? modules.room * 2 : KNOWN_FIRST, page = qy_os_page_size();
    size_t bytes = (room * sizeof(known_t) + page - 1) / page * page,
           old = (modules.room * sizeof(known_t) + page - 1) / page * page;
    known_t *known = qy_os_map(bytes, page, NULL);
    if (!known) return false;
    qy_own_add(known, bytes);
    if (modules.count) memcpy(known, modules.known, modules.count * sizeof *known);
    if (modules.known) {
        qy_own_remove(modules.known);
        qy_os_unmap(modules.known, old);
    }
    modules.known = known;
    modules.room = room;
    return true;
}

// Another file may lie where one was unloaded.
static uint64_t mark_of(const qy_os_loaded_t *l) {
    return qy_trace_sum(l->path, strlen(l->path)) ^ qy_trace_sum(l->id, l->id_bytes) ^
           qy_trace_sum(l->segment, l->segments * sizeof *l->segment);
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

// The time of a record. A thread's own may be older than that of a record of another thread, and then a file would be
// gone before it came. Of equal times readers take first what a thread with a lower number did.
static uint64_t next_time(const qy_writer_t *w) {
    modules.told = qy_max(modules.told + (modules.teller != w->thread), w->time);
    modules.teller = w->thread;
    return modules.told;
}

static known_t known_of(const qy_os_loaded_t *l) {
    uintptr_t from = UINTPTR_MAX, to = 0;
    for (unsigned i = 0; i < l->segments; i++) {
        from = qy_min(from, l->segment[i].address);
        to = qy_max(to, l->segment[i].address + l->segment[i].bytes);
    }
    return (known_t){l->base, l->base + from, to - from, mark_of(l), true};
}

static void tell_new(const qy_os_loaded_t *l, void *arg) {
    qy_writer_t *w = arg;
    if (modules_find(l) || !l->segments || !have_room()) return;
    if (!modules.maps.text) modules.maps = qy_os_maps_read();
    modules.known[modules.count++] = known_of(l);
    uint64_t base = l->base;
    qy_write_text(w, QY_OP_MODULE, QY_MODULE_LOADED, next_time(w), &base, modules.text, modules_describe(l));
}

static void tell_gone(qy_writer_t *w, const known_t *k) {
    qy_json_t j;
    uint64_t base = k->base;
    qy_json_begin(&j, modules.text, sizeof modules.text);
    qy_json_raw(&j, "{");
    json_number(&j, "nodes", qy_stacks_ids());
    qy_json_raw(&j, "}");
    qy_write_text(w, QY_OP_MODULE, QY_MODULE_UNLOADED, next_time(w), &base, modules.text, qy_json_length(&j));
    qy_stacks_unloaded(k->begin, k->bytes);
}

// What is gone is told first: something else may be in its place.
static void scan(qy_writer_t *w) {
    for (size_t i = 0; i < modules.count; i++) modules.known[i].seen = false;
    qy_os_each_loaded(modules_see, NULL);
    for (size_t i = 0; i < modules.count;) {
        if (modules.known[i].seen) {
            i++;
            continue;
        }
        tell_gone(w, &modules.known[i]);
        modules.known[i] = modules.known[--modules.count];
    }
    qy_os_each_loaded(tell_new, w);
    qy_os_maps_free(&modules.maps);
}

// `ids` were given out before it looks.
static void modules_look(qy_writer_t *w, uint32_t ids) {
    uint64_t loads, unloads;
    qy_os_loaded_changes(&loads, &unloads);
    uint64_t unloads_before = atomic_load_explicit(&modules.unloads, memory_order_relaxed);
    if (loads != atomic_load_explicit(&modules.loads, memory_order_relaxed) || unloads != unloads_before) {
        scan(w);
        if (unloads != unloads_before) qy_stacks_modules_changed();
        // Not before: another thread goes by it.
        atomic_store_explicit(&modules.loads, loads, memory_order_relaxed);
        atomic_store_explicit(&modules.unloads, unloads, memory_order_release);
    }
    qy_stacks_see(ids);
}

// A scan writes records, and so comes here again.
static bool modules_begin(qy_writer_t *w) {
    if (w->scanning || !qy_lock_try(&modules.lock)) return false;
    w->scanning = true;
    return true;
}

static void modules_end(qy_writer_t *w) {
    w->scanning = false;
    atomic_fetch_add_explicit(&modules.looks, 1, memory_order_relaxed);
    qy_lock_drop(&modules.lock);
}

// Is everything told? Without the lock.
static bool modules_told(void) {
    uint64_t loads, unloads;
    qy_os_loaded_changes(&loads, &unloads);
    return unloads == atomic_load_explicit(&modules.unloads, memory_order_acquire) &&
           loads == atomic_load_explicit(&modules.loads, memory_order_relaxed);
}

// Who unloaded could not tell it. Now it is told.
static void forgive(void) {
    if (!atomic_load_explicit(&modules.unsettled, memory_order_relaxed)) return;
    for (uint32_t n = atomic_exchange(&modules.unsettled, 0); n; n--) qy_stacks_open();
}

// What comes now is told before the thread's next stack.
static bool modules_settle(void *writer) {
    qy_writer_t *w = writer;
    if (w->scanning) return true;
    for (unsigned i = 0; i < WAITS; i++) {
        uint32_t looks = atomic_load_explicit(&modules.looks, memory_order_relaxed);
        bool told = modules_told();
        if (!told && modules_begin(w)) {
            modules_look(w, qy_stacks_ids());
            modules_end(w);
            told = true;
        }
        if (told) {
            forgive();
            return true;
        }
        qy_os_wait(&modules.looks, looks, WAIT_NS);
    }
    return false;
}

void qy_modules_closing(void) { qy_stacks_hold(modules_settle); }

void qy_modules_closed(qy_writer_t *w) {
    if (w ? modules_settle(w) : modules_told()) qy_stacks_open();
    else atomic_fetch_add(&modules.unsettled, 1);
}

void qy_modules_write(qy_writer_t *w) {
    if (!modules_begin(w)) return;
    modules_look(w, qy_stacks_ids());
    modules_end(w);
}

void qy_modules_before_node(qy_writer_t *w, uint32_t id) {
    if (!modules_begin(w)) return;
    modules_look(w, id);
    modules_end(w);
}

void qy_modules_restart(void) {
    qy_lock_reset(&modules.lock);
    atomic_store(&modules.loads, 0);
    atomic_store(&modules.unloads, 0);
    atomic_store(&modules.unsettled, 0);
    modules.count = 0;
    modules.told = 0;
}

void qy_modules_freeze(void) {
    qy_lock_fork(&modules.lock, 0);
}
void qy_modules_thaw(void) {
    qy_lock_fork(&modules.lock, 1);
}
