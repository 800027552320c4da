// SPDX-License-Identifier: MIT
// modules.c: see modules.h.
#include "stacks/modules.h"

#include <string.h>

#include "base/num.h"
#include "os/os.h"
#include "rt/lock.h"
#include "stacks/own.h"
#include "stacks/stacks.h"

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
    _Atomic uint32_t unsettled;         // unloadings that are over and not told
    const qy_modules_teller_t *teller;  // constant
    known_t *known;
    size_t count, room;
} modules;

void qy_modules_begin(const qy_modules_teller_t *teller) { modules.teller = teller; }

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

static uint64_t mark_add(uint64_t sum, const void *from, size_t bytes) {
    const uint8_t *at = from;
    for (size_t i = 0; i < bytes; i++) sum = (sum ^ at[i]) * UINT64_C(0x100000001b3);
    return sum ^ bytes;
}

// Another file may lie where one was unloaded.
static uint64_t mark_of(const qy_os_loaded_t *l) {
    uint64_t sum = mark_add(UINT64_C(0xcbf29ce484222325), l->path, strlen(l->path));
    return mark_add(mark_add(sum, l->id, l->id_bytes), l->segment, l->segments * sizeof *l->segment);
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

static known_t known_of(const qy_os_loaded_t *l) {
    uintptr_t from = UINTPTR_MAX, to = 0;
    for (unsigned i = 0; i < l->segments; i++) {
        from = qy_min(from, l->segment[i].address);
        to = qy_max(to, l->segment[i].address + l->segment[i].bytes);
    }
    return (known_t){l->base, l->base + from, to - from, mark_of(l), true};
}

static void tell_new(const qy_os_loaded_t *l, void *arg) {
    if (modules_find(l) || !l->segments || !have_room()) return;
    modules.known[modules.count++] = known_of(l);
    modules.teller->loaded(arg, l);
}

static void tell_gone(void *arg, const known_t *k) {
    modules.teller->gone(arg, k->base);
    qy_stacks_unloaded(k->begin, k->bytes);
}

// What is gone is told first: something else may be in its place.
static void scan(void *arg) {
    for (size_t i = 0; i < modules.count; i++) modules.known[i].seen = false;
    qy_os_each_loaded(modules_see, NULL);
    for (size_t i = 0; i < modules.count;) {
        if (modules.known[i].seen) {
            i++;
            continue;
        }
        tell_gone(arg, &modules.known[i]);
        modules.known[i] = modules.known[--modules.count];
    }
    qy_os_each_loaded(tell_new, arg);
    modules.teller->done(arg);
}

// `ids` were given out before it looks.
static void modules_look(void *arg, uint32_t ids) {
    uint64_t loads, unloads;
    qy_os_loaded_changes(&loads, &unloads);
    uint64_t unloads_before = atomic_load_explicit(&modules.unloads, memory_order_relaxed);
    if (loads != atomic_load_explicit(&modules.loads, memory_order_relaxed) || unloads != unloads_before) {
        scan(arg);
        if (unloads != unloads_before) qy_stacks_modules_changed();
        // Not before: another thread goes by it.
        atomic_store_explicit(&modules.loads, loads, memory_order_relaxed);
        atomic_store_explicit(&modules.unloads, unloads, memory_order_release);
    }
    qy_stacks_see(ids);
}

// A scan may come here again, by what the teller does.
static bool look_begins(void *arg) {
    bool *looking = modules.teller->looking(arg);
    if (*looking || !qy_lock_try(&modules.lock)) return false;
    *looking = true;
    return true;
}

static void look_ends(void *arg) {
    *modules.teller->looking(arg) = false;
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
static bool modules_settle(void *arg) {
    if (*modules.teller->looking(arg)) return true;
    for (unsigned i = 0; i < WAITS; i++) {
        uint32_t looks = atomic_load_explicit(&modules.looks, memory_order_relaxed);
        bool told = modules_told();
        if (!told && look_begins(arg)) {
            modules_look(arg, qy_stacks_ids());
            look_ends(arg);
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

void qy_modules_closed(void *arg) {
    if (arg ? modules_settle(arg) : modules_told()) qy_stacks_open();
    else atomic_fetch_add(&modules.unsettled, 1);
}

void qy_modules_write(void *arg) {
    if (!look_begins(arg)) return;
    modules_look(arg, qy_stacks_ids());
    look_ends(arg);
}

void qy_modules_before_node(void *arg, uint32_t id) {
    if (!look_begins(arg)) return;
    modules_look(arg, id);
    look_ends(arg);
}

void qy_modules_restart(void) {
    qy_lock_reset(&modules.lock);
    atomic_store(&modules.loads, 0);
    atomic_store(&modules.unloads, 0);
    atomic_store(&modules.unsettled, 0);
    modules.count = 0;
}

void qy_modules_freeze(void) {
    qy_lock_fork(&modules.lock, 0);
}
void qy_modules_thaw(void) {
    qy_lock_fork(&modules.lock, 1);
}
void qy_modules_in_child(void) {
    qy_lock_fork(&modules.lock, 2);
    atomic_store(&modules.unsettled, qy_stacks_holds());
}
