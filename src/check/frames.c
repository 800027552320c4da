// SPDX-License-Identifier: MIT
// frames.c: see frames.h. The list of modules and that of kept addresses only grow, at their heads, by the thread that
// looks (stacks/modules.h); others read them without a lock.
#include "check/frames.h"

#include <stdatomic.h>
#include <string.h>

#include "base/num.h"
#include "check/check.h"
#include "check/memory.h"
#include "check/threads.h"
#include "heap/cache.h"
#include "os/maps.h"
#include "os/module.h"
#include "os/process.h"
#include "stacks/modules.h"
#include "stacks/stacks_tree.h"
#include "stacks/unwind.h"

// Addresses of a module that is gone, by the numbers of their nodes, which rise.
typedef struct kept {
    struct kept *next;
    qy_check_module_t *module;
    uint32_t count;
    struct {
        uint32_t node;
        bool exact;
        uintptr_t pc;
    } of[];
} kept_t;

static struct {
    _Atomic(qy_check_module_t *) modules;
    _Atomic(kept_t *) kept;
    uint32_t count;  // of the thread that looks, as the next two
    qy_os_maps_t maps;
    char path[4096];
} known;
_Atomic uint32_t *qy_check_ordinals;

static bool *check_looking(void *arg) { return &((qy_check_thread_t *)arg)->looking; }

static const char *module_path(const qy_os_loaded_t *l) {
    qy_os_mapped_t mapped;
    if (!known.maps.text) known.maps = qy_os_maps_read();
    if (qy_os_maps_find(
            &known.maps, l->base + l->segment[0].address, known.path, sizeof known.path, &mapped))
        return known.path;
    if (!*l->path && qy_os_program_path(known.path, sizeof known.path)) return known.path;
    return l->path;
}

static void check_loaded(void *arg, const qy_os_loaded_t *l) {
    (void)arg;
    const char *path = module_path(l);
    size_t length = strlen(path) + 1;
    qy_check_module_t *m = qy_check_memory(sizeof *m + length, false);
    if (!m) return;
    uint64_t from = UINT64_MAX, to = 0;
    for (unsigned i = 0; i < l->segments; i++) {
        from = qy_min(from, l->segment[i].address);
        to = qy_max(to, l->segment[i].address + l->segment[i].bytes);
    }
    m->id = ++known.count;
    m->bias = l->base;
    m->begin = l->base + from;
    m->end = l->base + to;
    m->born = qy_stacks_seen();
    m->died = UINT32_MAX;
    m->id_bytes = l->id_bytes;
    memcpy(m->build_id, l->id, sizeof m->build_id);
    memcpy(m->path, path, length);
    m->next = atomic_load_explicit(&known.modules, memory_order_relaxed);
    atomic_store_explicit(&known.modules, m, memory_order_release);
}

static bool lies_in(const qy_check_module_t *m, uintptr_t pc) {
    // A return address may be one behind the last instruction.
    return (pc & ~QY_PC_EXACT) - !(pc & QY_PC_EXACT) - m->begin < m->end - m->begin;
}

// What the tree is about to forget.
static void keep_addresses(qy_check_module_t *m) {
    uint32_t count = 0, ids = qy_stacks_ids();
    for (uint32_t id = m->born + 1; id <= ids; id++)
        count += lies_in(m, atomic_load_explicit(&qy_tree.nodes[id].pc, memory_order_relaxed));
    kept_t *k = count ? qy_check_memory(sizeof *k + count * sizeof *k->of, false) : NULL;
    if (!k) return;
    k->module = m;
    for (uint32_t id = m->born + 1; id <= ids && k->count < count; id++) {
        uintptr_t pc = atomic_load_explicit(&qy_tree.nodes[id].pc, memory_order_relaxed);
        if (!lies_in(m, pc)) continue;
        k->of[k->count].node = id;
        k->of[k->count].exact = pc & QY_PC_EXACT;
        k->of[k->count++].pc = pc & ~QY_PC_EXACT;
    }
    k->next = atomic_load_explicit(&known.kept, memory_order_relaxed);
    atomic_store_explicit(&known.kept, k, memory_order_release);
}

static void check_gone(void *arg, uintptr_t base) {
    (void)arg;
    qy_check_module_t *m = atomic_load_explicit(&known.modules, memory_order_relaxed);
    while (m && (m->gone || m->bias != base)) m = m->next;
    if (!m) return;
    m->died = qy_stacks_ids();
    if (qy_tree.nodes) keep_addresses(m);
    m->gone = true;
}

static void check_done(void *arg) {
    (void)arg;
    qy_os_maps_free(&known.maps);
}

bool qy_check_frames_begin(void) {
    static const qy_modules_teller_t teller = {check_looking, check_loaded, check_gone, check_done};
    qy_modules_begin(&teller);
    if (!qy_os_module_may_be_asked() || !qy_stacks_start(QY_STACKS_CFI, 0)) return false;
    qy_check_ordinals = qy_check_memory((qy_tree.limit + (size_t)1) * sizeof *qy_check_ordinals, true);
    return true;
}

// The tree is read where it lies; only what a node lies in is told.
static bool frames_emit(void *arg, uint32_t id, uint32_t parent, uintptr_t pc, bool is_return) {
    (void)parent, (void)pc, (void)is_return;
    qy_modules_before_node(arg, id);
    return true;
}

// Within a report it is left to the next call.
QY_COLD static void stack_is_missing(const qy_check_thread_t *t) {
    static _Atomic bool noted;
    if (t->reporting || !qy_stacks_full() || atomic_exchange(&noted, true)) return;
    qy_check_note("no room for more call stacks: later blocks and errors may have none, and such blocks no guard");
}

uint32_t qy_check_stack(const qy_stack_regs_t *from) {
    qy_check_thread_t *t = &qy_check_thread;
    uint32_t stack = from ? qy_stack_capture_outside(from, frames_emit, t) : qy_stack_capture(frames_emit, t);
    // With its heap a thread lets go of what its stacks take. One that only frees had none, and one that has ended gets
    // none.
    if (QY_UNLIKELY(qy_thread_state != QY_THREAD_LIVE) && !qy_thread_get()) qy_stacks_thread_end();
    if (QY_UNLIKELY(!stack)) stack_is_missing(t);
    return stack;
}

void qy_check_frames_look(void) { qy_modules_write(&qy_check_thread); }

static bool frame_of_gone(uint32_t node, qy_check_frame_t *ret) {
    for (kept_t *k = atomic_load_explicit(&known.kept, memory_order_acquire); k; k = k->next) {
        uint32_t low = 0, high = k->count;
        while (low < high) {
            uint32_t middle = low + (high - low) / 2;
            if (k->of[middle].node < node) low = middle + 1;
            else high = middle;
        }
        if (low == k->count || k->of[low].node != node) continue;
        *ret = (qy_check_frame_t){k->of[low].pc, k->of[low].exact, k->module};
        return true;
    }
    return false;
}

uint32_t qy_check_frame(uint32_t node, qy_check_frame_t *ret) {
    const qy_stacks_node_t *n = &qy_tree.nodes[node];
    uintptr_t pc = atomic_load_explicit(&n->pc, memory_order_relaxed);
    *ret = (qy_check_frame_t){pc & ~QY_PC_EXACT, pc & QY_PC_EXACT, NULL};
    if (pc == QY_NODE_GONE) {
        if (!frame_of_gone(node, ret)) ret->pc = 0;
    } else {
        qy_check_module_t *m = atomic_load_explicit(&known.modules, memory_order_acquire);
        while (m && (!lies_in(m, pc) || node <= m->born || node > m->died)) m = m->next;
        ret->module = m;
    }
    return atomic_load_explicit(&n->parent, memory_order_relaxed) & ~QY_NODE_THERE;
}

bool qy_check_frame_is_ours(const qy_check_frame_t *f) {
    return f->module && lies_in(f->module, (uintptr_t)qy_check_frame_is_ours);
}

void qy_check_modules_untold(void) {
    for (qy_check_module_t *m = atomic_load(&known.modules); m; m = m->next) atomic_store(&m->told, false);
}
