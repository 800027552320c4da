// SPDX-License-Identifier: MIT
// guards.c: see guards.h.
#include "heap/guards.h"

#include "heap/cache.h"
#include "heap/draw.h"
#include "heap/guards_choice.h"
#include "heap/guards_report.h"
#include "heap/lookup.h"
#include "heap/pace.h"
#include "os/faults.h"
#include "os/os.h"
#include "rt/opts.h"
#include "rt/stats_page.h"
#include "stacks/innermost.h"
#include "stacks/own.h"

#define SPACE ((size_t)4 << 20)
#define SLOTS 256u
#define LIVE ((size_t)256 << 10)
#define BLOCK_MOST (LIVE / 8)
// What was learnt of the program's files is forgotten so often: one may have been unloaded, and another come.
#define FORGET_NS (10 * QY_PACE_SECOND)
// A free waits so long for another thread's walk; then its stack is not known.
#define WALK_TRIES 4000

// A mapping: programs without the option have nothing of it, also where they lock all of their memory.
typedef struct guards_memory {
    qy_innermost_t innermost;        // [lock]
    qy_guards_row_t row[SLOTS + 1];  // by number of a slot
} guards_memory_t;

// `lock` is for all that a walk and a choice need. Who allocates does not wait for it.
static struct {
    qy_lock_t lock;
    qy_pace_t pace;           // [lock]
    uint64_t forgot_ns;       // [lock]
    guards_memory_t *memory;  // constant once they are up
    unsigned finest;          // the rate that was asked for
    _Atomic bool denied;
} guards;

qy_lock_t *qy_guards_lock(void) { return &guards.lock; }

static uint64_t word_at_rate(unsigned rate) { return QY_DRAW_GUARDS | QY_DRAW_ON | rate; }

void qy_guards_begin(void) {
    if (!qy_opts.guard || atomic_load(&guards.denied)) return;
    guards.finest = qy_log2_floor(qy_opts.guard);
    qy_draw_set_usual(word_at_rate(guards.finest));
}

void qy_guards_deny(void) {
    atomic_store(&guards.denied, true);
    qy_draw_set_usual(0);
}

void qy_guards_live(size_t *ret_blocks, size_t *ret_bytes) {
    *ret_blocks = *ret_bytes = 0;
    if (atomic_load_explicit(&qy_lookup_guards, memory_order_acquire)) qy_guard_get_live(ret_blocks, ret_bytes);
}

// ---- stacks -------------------------------------------------------------------------------------------------

// The bounds of the calling thread's stack, in its record. That may have been another thread's before.
static qy_bounds_t *bounds_of_thread(qy_bounds_t *none) {
    qy_thread_t *t = QY_CACHE->thread;
    if (!t || !t->draw) return none;
    uint64_t thread = qy_os_thread_token() ^ (uint64_t)qy_os_thread_id_known() << 40;
    if (t->draw->bounds_of != thread) {
        t->draw->bounds = (qy_bounds_t){0};
        t->draw->bounds_of = thread;
    }
    return &t->draw->bounds;
}

static unsigned frames_from(const qy_stack_regs_t *from, uintptr_t *ret_pc) {
    QY_NEEDS(&guards.lock);
    qy_bounds_t none = {0};
    return qy_innermost_frames(&guards.memory->innermost, bounds_of_thread(&none), from, ret_pc, QY_GUARDS_FRAMES);
}

QY_NOINLINE static unsigned frames_soon(const qy_stack_regs_t *from, uintptr_t *ret_pc) {
    if (!qy_guards_lock_soon(&guards.lock, WALK_TRIES)) return 0;
    unsigned frames = frames_from(from, ret_pc);
    qy_lock_drop(&guards.lock);
    return frames;
}

static void row_put(uint32_t slot, qy_guards_event_t event, const uintptr_t *pc, unsigned frames) {
    qy_guards_stack_t *stack = &guards.memory->row[slot].stack[event];
    for (unsigned i = 0; i < frames; i++) atomic_store_explicit(&stack->pc[i], pc[i], memory_order_relaxed);
    atomic_store_explicit(&stack->count, frames, memory_order_release);
}

// ---- faults -------------------------------------------------------------------------------------------------

static qy_guards_fault_t guards_fault_of(const qy_guard_block_t *b, uintptr_t address, const char *kind) {
    const qy_guards_row_t *row = b->address ? &guards.memory->row[b->slot] : NULL;
    return (qy_guards_fault_t){.kind = kind, .address = address, .block = b, .row = row, .what = "used"};
}

// Of a block that is live, and an address in it: another thread was given this slot meanwhile, or opened the page.
static bool guards_on_fault(const qy_os_fault_t *at) {
    qy_guard_block_t b;
    if (!qy_lookup_is_guarded((const void *)at->address) || !qy_guard_find(at->address, &b)) return false;
    if (!b.freed && at->address - b.address < b.size) return qy_guard_open(at->address);
    if (!atomic_exchange(&guards.memory->row[b.slot].told, true)) {
        qy_guard_access_t access = !at->is_known ? QY_GUARD_UNKNOWN : at->is_write ? QY_GUARD_WRITE
                                                                                   : QY_GUARD_READ;
        qy_guards_fault_t f = guards_fault_of(&b, at->address, qy_guard_kind(&b, at->address, access));
        qy_stack_regs_t from = {.pc = at->pc, .sp = at->sp, .fp = at->fp, .exact = true};
        f.frames = frames_soon(&from, f.used);
        if (!f.frames) f.used[f.frames++] = at->pc;
        qy_guards_tell(&f, true);
    }
    return qy_opts.guard_go_on && qy_guard_open(at->address);
}

// ---- start --------------------------------------------------------------------------------------------------

static guards_memory_t *memory_new(void) {
    size_t bytes = qy_round_up(sizeof(guards_memory_t), qy_os_page_size());
    guards_memory_t *memory = qy_os_map(bytes, qy_os_page_size(), NULL);
    if (memory) qy_own_add(memory, bytes);
    return memory;
}

// In a child of a fork that was made while another thread was here it is not done twice.
static bool guards_start(void) {
    QY_NEEDS(&guards.lock);
    if (atomic_load_explicit(&qy_lookup_guards, memory_order_relaxed)) return true;
    qy_guard_limits_t limits = {.space = SPACE, .slots = SLOTS, .live = LIVE};
    if (!guards.memory) guards.memory = memory_new();
    bool up = guards.memory && qy_guard_start(&limits) && qy_os_faults_begin(guards_on_fault);
    if (!up) {
        qy_guards_deny();
        return false;
    }
    qy_innermost_start(&guards.memory->innermost);
    atomic_store_explicit(&qy_lookup_guards, true, memory_order_release);
    return true;
}

// ---- malloc -------------------------------------------------------------------------------------------------

// While nobody reads, the draws are ours, and so is their rate: never finer than was asked for.
static void guards_keep_pace(uint64_t now) {
    QY_NEEDS(&guards.lock);
    uint64_t word = qy_draw_usual();
    if (qy_draw_control() != word) return;
    uint64_t next = qy_pace_next(&guards.pace, word | QY_DRAW_ADAPTS, now, true, 0, SLOTS, guards.finest);
    if (qy_draw_rate(next) != qy_draw_rate(word)) qy_draw_set_usual(word_at_rate(qy_draw_rate(next)));
}

// What is usable: as much as was asked for, as malloc aligns it.
static size_t usable_for(size_t n) { return qy_round_up(n, QY_ALIGN_MIN); }

static void *guards_take(size_t align, size_t n, const qy_stack_regs_t *from) {
    QY_NEEDS(&guards.lock);
    uint64_t now = qy_os_now_coarse_ns();
    guards_keep_pace(now);
    if (now - guards.forgot_ns >= FORGET_NS) {
        guards.forgot_ns = now;
        qy_innermost_forget(&guards.memory->innermost);
    }
    uintptr_t pc[QY_GUARDS_FRAMES];
    unsigned frames = frames_from(from, pc);
    size_t blocks, live;
    qy_guard_get_live(&blocks, &live);
    qy_guards_turn_t turn;
    if (!qy_guards_choose(qy_guards_site(pc, frames, n), live, LIVE, &turn)) return NULL;
    qy_guard_note_t born = {.thread = (uint32_t)qy_os_thread_id_known()};
    bool zero;
    uint32_t slot;
    void *p = qy_guard_alloc(qy_max(align, QY_ALIGN_MIN), usable_for(n), turn.side, &born, n, &zero, &slot);
    if (!p) return NULL;
    qy_assert(zero);
    row_put(slot, QY_GUARDS_BORN, pc, frames);
    row_put(slot, QY_GUARDS_DIED, pc, 0);
    atomic_store_explicit(&guards.memory->row[slot].told, false, memory_order_relaxed);
    qy_guards_chosen(&turn);
    return p;
}

QY_COLD void *qy_guards_alloc(size_t align, size_t n, bool *ret_fresh) {
    if (!qy_draw_usual() || n > BLOCK_MOST || align > qy_os_page_size()) return NULL;
    if (!qy_lock_try(&guards.lock)) return NULL;
    qy_stack_regs_t here = QY_STACK_CALLER();
    void *p = guards_start() ? guards_take(align, n, &here) : NULL;
    qy_lock_drop(&guards.lock);
    if (p) *ret_fresh = true;
    return p;
}

// ---- free ---------------------------------------------------------------------------------------------------

// What is known is told first; the line follows from whoever ends the process, or here.
QY_NOINLINE static bool guards_misused_at(const void *p, const qy_stack_regs_t *here) {
    qy_guard_block_t b = {0};
    qy_object_t o = qy_lookup(p);
    if (!qy_guard_find((uintptr_t)p, &b)) return false;
    qy_guards_fault_t f = guards_fault_of(&b, (uintptr_t)p, "invalid free");
    if (o.kind == QY_OBJECT_FREE) f.kind = "double free";
    if (o.kind == QY_OBJECT_INTERIOR) f.kind = "free of an interior pointer";
    f.what = o.kind == QY_OBJECT_FREE ? "freed again" : "freed";
    f.frames = frames_soon(here, f.used);
    qy_guards_tell(&f, qy_opts.guard_go_on);
    return true;
}

QY_COLD void qy_guards_misused(const void *p) {
    qy_stack_regs_t here = QY_STACK_CALLER();
    if (!guards_misused_at(p, &here) || !qy_opts.guard_go_on) qy_lookup_must(p);
}

QY_COLD void qy_guards_free(void *p) {
    qy_stack_regs_t here = QY_STACK_CALLER();
    qy_guard_block_t b;
    uintptr_t pc[QY_GUARDS_FRAMES];
    // Before: an access that follows the free at once finds it.
    unsigned frames = frames_soon(&here, pc);
    if (qy_guard_find((uintptr_t)p, &b) && !b.freed && b.address == (uintptr_t)p)
        row_put(b.slot, QY_GUARDS_DIED, pc, frames);
    qy_guard_note_t died = {.thread = (uint32_t)qy_os_thread_id_known()};
    if (qy_guard_free(p, &died, &b) == QY_GUARD_DONE) return;
    if (!guards_misused_at(p, &here) || !qy_opts.guard_go_on) qy_lookup_must(p);
}
