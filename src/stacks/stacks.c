// SPDX-License-Identifier: MIT
// stacks.c: a capture: walk, then the ids.
//
// Each thread remembers its last walk (the trail): the frames, their ids, and the words of the stack they were
// read from. The next walk ends where it comes to a frame that stands there with the same registers, if all words
// that led on from it are what they were: then the way on is the same, and the frame's id is the id of the
// rest. The words must all be compared. It would not do to compare the frame alone, nor to stop at the
// first outer frame that is the same: main may have called B instead of A meanwhile, with
// everything at the same place. Comparing costs a load per word, all independent of each other, where a
// step must wait for the load before it.
//
// Not remembered: walks that read foreign stacks (their memory may be gone), and those deeper than QY_STACK_DEPTH
// (the outermost frame in them is another each time).
#include "stacks/stacks.h"

#include "os/module.h"
#include "os/os.h"
#include "stacks/stacks_thread.h"

// One word, so that a capture looks at one: the mode, and above it how often captures are held.
#define MODE 0xffu
#define HELD 0x100u

static struct {
    _Atomic uint32_t mode;  // set last
    _Atomic(qy_stacks_settle_t *) settle;
    _Atomic uint64_t not_taken;  // captures of threads without memory, and those that could not settle
} stacks;

// Found by the first that asks. Two at once find the same.
static struct {
    _Atomic bool known;
    _Atomic uintptr_t begin, bytes;
} stacks_own;

uintptr_t qy_stacks_own(uintptr_t *ret_bytes) {
    qy_os_module_t m;
    if (QY_UNLIKELY(!atomic_load_explicit(&stacks_own.known, memory_order_acquire))) {
        if (qy_os_module_at((uintptr_t)&qy_stacks_own, &m) && !m.main) {
            atomic_store_explicit(&stacks_own.begin, m.begin, memory_order_relaxed);
            atomic_store_explicit(&stacks_own.bytes, m.end - m.begin, memory_order_relaxed);
        }
        atomic_store_explicit(&stacks_own.known, true, memory_order_release);
    }
    *ret_bytes = atomic_load_explicit(&stacks_own.bytes, memory_order_relaxed);
    return atomic_load_explicit(&stacks_own.begin, memory_order_relaxed);
}

static qy_stacks_mode_t mode_in_force(void) {
    return (qy_stacks_mode_t)(atomic_load_explicit(&stacks.mode, memory_order_acquire) & MODE);
}

bool qy_stacks_start(qy_stacks_mode_t mode, uint32_t limit) {
#if !defined(__x86_64__)
    if (mode == QY_STACKS_CFI) mode = QY_STACKS_FP;
#endif
    if (mode == QY_STACKS_NONE) return true;
    if (mode_in_force() == mode) return true;
    // The heap's sampler and pools may be the first, each under locks of its own. The second does not wait: its
    // captures give 0 until the first is done.
    static _Atomic bool starting;
    if (atomic_exchange(&starting, true)) return false;
    bool there = qy_tree_start(limit ? limit : QY_STACK_NODES) && qy_rules_start(limit != 0);
    if (there) {
        uint32_t held = atomic_load_explicit(&stacks.mode, memory_order_relaxed) & ~MODE;
        atomic_store_explicit(&stacks.mode, held | (uint32_t)mode, memory_order_release);
    }
    atomic_store(&starting, false);
    return there;
}

qy_stacks_mode_t qy_stacks_mode(void) { return mode_in_force(); }

// ---- after the walk -----------------------------------------------------------------------------------

static void cut_trail(qy_trail_t *t, uint32_t frames) {
    t->frames = frames;
    t->words = frames ? t->frame[frames - 1].words : 0;
}

// The walk's frames come after the joined ones, outermost first, each with its words. A saved fp that no frame further
// out goes by is left out.
static void extend_trail(qy_trail_t *t, const qy_walk_t *w) {
    if (w->foreign || t->words + w->words > QY_WALK_WORDS) return;
    bool counts = t->frames ? t->frame[t->frames - 1].fp_counts : w->end != QY_WALK_OUTER;
    for (uint32_t i = w->frames; i-- > 0;) {
        uint32_t first = i ? w->frame[i - 1].words : 0, count = w->frame[i].words - first, use = w->frame[i].fp_use;
        // mostly one or two: no branches for them
        for (uint32_t j = 0; j < 2; j++) t->word[t->words + j] = w->word[first + j];
        for (uint32_t j = 2; j < count; j++) t->word[t->words + j] = w->word[first + j];
        t->words += use == QY_FP_UNKNOWN || counts ? count : count != 0;
        counts = use & QY_FP_ENDS ? use & QY_FP_BASE : counts || use;
        t->frame[t->frames] = w->frame[i];
        t->frame[t->frames].fp_counts = counts;
        t->frame[t->frames++].words = t->words;
    }
}

typedef struct teller {
    qy_stack_thread_t *thread;
    qy_stack_emit_t emit;
    void *arg;
} teller_t;

// The id of the frame, called from `parent`; 0 and counted.
static uint32_t intern(const teller_t *teller, uint32_t parent, uintptr_t pc) {
    uint32_t id = qy_tree_find(parent, pc);
    if (QY_LIKELY(id != 0)) return id;
    qy_stack_thread_t *t = teller->thread;
    if (atomic_load_explicit(&qy_tree.epoch, memory_order_relaxed) != t->epoch) return 0;
    switch (qy_tree_add(parent, pc, &t->spare, teller->emit, teller->arg, &id)) {
    case QY_ADD_FULL: qy_stack_count(t, QY_STACK_FULL, 1); return 0;
    case QY_ADD_REFUSED: qy_stack_count(t, QY_STACK_FAILED, 1); return 0;
    default: return id;
    }
}

// More frames than a stack may have: the innermost ones, from the root. What was joined is told again
// under other ids.
static uint32_t intern_deep(const teller_t *teller, uint32_t joined, qy_walk_t *w) {
    qy_trail_t *trail = &teller->thread->trail;
    uint32_t id = 0;
    qy_stack_count(teller->thread, QY_STACK_DEEP, 1);
    for (uint32_t i = joined + w->frames - QY_STACK_DEPTH; i < joined; i++)
        if (!(id = intern(teller, id, trail->frame[i].pc))) return 0;
    for (uint32_t i = w->frames; i-- > 0;)
        if (!(id = intern(teller, id, w->frame[i].pc))) return 0;
    return id;
}

static uint32_t intern_walk(const teller_t *teller, qy_walk_t *w) {
    qy_trail_t *trail = &teller->thread->trail;
    uint32_t id = w->joined ? trail->frame[w->joined - 1].id : 0;
    if (QY_UNLIKELY(w->end == QY_WALK_DEEP || w->joined + w->frames > QY_STACK_DEPTH))
        return intern_deep(teller, w->joined, w);
    cut_trail(trail, w->joined);
    for (uint32_t i = w->frames; i-- > 0;) {
        id = intern(teller, id, w->frame[i].pc);
        if (QY_UNLIKELY(!id)) return 0;
        w->frame[i].id = id;
    }
    extend_trail(trail, w);
    return id;
}

// ---- a capture ------------------------------------------------------------------------------------------

static void check_trail(qy_stack_thread_t *t) {
    uint32_t epoch = atomic_load_explicit(&qy_tree.epoch, memory_order_relaxed);
    uint32_t generation = atomic_load_explicit(&qy_rules.generation, memory_order_acquire);
    if (QY_LIKELY(t->epoch == epoch && t->generation == generation)) return;
    if (t->epoch != epoch) t->spare = 0;
    t->epoch = epoch;
    t->generation = generation;
    cut_trail(&t->trail, 0);
    for (unsigned i = 0; i < QY_RECALL_WALKS; i++) t->recall[i].sp = 0;
}

// ---- the same stacks again and again ----------------------------------------------------------------------

// One of two places, of which the other is this one ^ 1.
static unsigned recall_at(const qy_stack_regs_t *from) {
    return (unsigned)((from->pc ^ from->sp << 20) * UINT64_C(0x9E3779B97F4A7C15) >> 58);
}
_Static_assert(QY_RECALL_WALKS == 1u << 6, "recall_at");

// A place that has no walk has no sp.
QY_INLINE bool recall_is(const qy_recall_t *r, const qy_stack_regs_t *from) {
    return r->pc == from->pc && r->sp == from->sp && !((r->fp ^ from->fp) & r->fp_mask);
}

QY_INLINE uintptr_t word_differs(const qy_word_t *w) { return qy_load(w->at) ^ w->value; }
_Static_assert(QY_RECALL_AT_ONCE == 4 && QY_RECALL_WORDS % QY_RECALL_AT_ONCE == 0, "recall");

// 0: not known.
QY_INLINE uint32_t recall(const qy_stack_thread_t *t, const qy_stack_regs_t *from) {
    unsigned at = recall_at(from);
    if (!recall_is(&t->recall[at], from) && !recall_is(&t->recall[at ^= 1], from)) return 0;
    const qy_recall_t *r = &t->recall[at];
    const qy_word_t *word = t->recalled[at];
    for (const qy_word_t *w = word + r->words; w > word;) {  // the inner frames differ most often
        w -= QY_RECALL_AT_ONCE;
        if (QY_UNLIKELY(word_differs(w) | word_differs(w + 1) | word_differs(w + 2) | word_differs(w + 3))) return 0;
    }
    return r->id;
}

// Of frames of ours that were left out the words are not known: `from` must be the innermost frame.
// One walk of four is learnt: a stack that comes often has its place soon, and seldom loses it to one that does not.
static void recall_learn(qy_stack_thread_t *t, const qy_stack_regs_t *from, uint32_t id) {
    const qy_trail_t *trail = &t->trail;
    if (!id || !trail->frames || trail->words > QY_RECALL_WORDS || ++t->walks % 4) return;
    if (t->walk.end != QY_WALK_OUTER && t->walk.end != QY_WALK_JOINED) return;
    const qy_unwind_frame_t *inner = &trail->frame[trail->frames - 1];
    if (inner->id != id || inner->pc != from->pc || inner->sp != from->sp) return;
    unsigned at = recall_at(from);
    // Where it is; else the free place; else its own.
    qy_recall_t *r = &t->recall[at], *other = &t->recall[at ^ 1];
    if (!recall_is(r, from) && r->sp && (recall_is(other, from) || !other->sp)) r = other;
    r->pc = from->pc, r->sp = from->sp, r->fp = from->fp;
    r->fp_mask = 0 - (uintptr_t)inner->fp_counts;
    r->id = id, r->words = 0;
    qy_word_t *word = t->recalled[r - t->recall];
    for (uint32_t i = 0; i < trail->words; i++) word[r->words++] = trail->word[i];
    for (; r->words % QY_RECALL_AT_ONCE; r->words++) word[r->words] = word[r->words - 1];
}

static uint32_t capture_on(
    qy_stack_thread_t *t, const qy_stack_regs_t *from, bool skip, qy_stack_emit_t emit, void *arg) {
    check_trail(t);
    if (skip && !from->exact) {  // what is recalled waits for a call there
        uint32_t known = recall(t, from);
        if (QY_LIKELY(known)) return known;
    }
    qy_walk_t *w = &t->walk;
    w->bounds = &t->bounds;
    w->window = t->window;
    uintptr_t own_bytes, own = qy_stacks_own(&own_bytes);
    if (!skip) own_bytes = 0;
    if ((atomic_load_explicit(&stacks.mode, memory_order_relaxed) & MODE) == QY_STACKS_CFI)
        qy_walk_cfi(w, from, &t->trail, own, own_bytes);
    else qy_walk_fp(w, from, &t->trail, own, own_bytes);
    qy_stack_count(t, QY_STACK_CAPTURES, 1);
    qy_stack_count(t, QY_STACK_FRAMES, w->frames);
    if (w->end == QY_WALK_JOINED) qy_stack_count(t, QY_STACK_JOINED, 1);
    if (w->end == QY_WALK_CUT) qy_stack_count(t, QY_STACK_CUT, 1);
    if (w->foreign) qy_stack_count(t, QY_STACK_FOREIGN, 1);
    uint32_t id = intern_walk(&(teller_t){t, emit, arg}, w);
    if (skip) recall_learn(t, from, id);
    // A signal handler that forks, and begins anew in the child, leaves the child in here with ids of a tree that is
    // gone.
    return QY_LIKELY(atomic_load_explicit(&qy_tree.epoch, memory_order_relaxed) == t->epoch) ? id : 0;
}

// Nothing is captured, or captures are held.
QY_COLD static bool may_capture(uint32_t mode, void *arg) {
    if ((mode & MODE) == QY_STACKS_NONE) return false;
    qy_stacks_settle_t *settle = atomic_load_explicit(&stacks.settle, memory_order_acquire);
    if (!settle || settle(arg)) return true;
    atomic_fetch_add_explicit(&stacks.not_taken, 1, memory_order_relaxed);
    return false;
}

static uint32_t stacks_capture(const qy_stack_regs_t *from, bool skip, qy_stack_emit_t emit, void *arg) {
    uint32_t mode = atomic_load_explicit(&stacks.mode, memory_order_acquire);
    if (QY_UNLIKELY(mode - 1 >= QY_STACKS_CFI) && !may_capture(mode, arg)) return 0;
    qy_stack_thread_t *t = qy_stack_thread();
    if (QY_UNLIKELY(!t)) {
        atomic_fetch_add_explicit(&stacks.not_taken, 1, memory_order_relaxed);
        return 0;
    }
    if (QY_UNLIKELY(atomic_load_explicit(&t->busy, memory_order_relaxed))) {
        qy_stack_count(t, QY_STACK_REENTERED, 1);
        return 0;
    }
    atomic_store_explicit(&t->busy, true, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    uint32_t id = capture_on(t, from, skip, emit, arg);
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(&t->busy, false, memory_order_relaxed);
    return id;
}

uint32_t qy_stack_capture_from(const qy_stack_regs_t *from, qy_stack_emit_t emit, void *arg) {
    return stacks_capture(from, false, emit, arg);
}

uint32_t qy_stack_recall(const qy_stack_regs_t *from) {
    uint32_t mode = atomic_load_explicit(&stacks.mode, memory_order_acquire);
    qy_stack_thread_t *t = atomic_load_explicit(&qy_stack_thread_self, memory_order_relaxed);
    if (QY_UNLIKELY(mode - 1 >= QY_STACKS_CFI || from->exact || !t)) return 0;  // as in capture_on
    if (QY_UNLIKELY(atomic_load_explicit(&t->busy, memory_order_relaxed))) return 0;
    if (QY_UNLIKELY(t->epoch != atomic_load_explicit(&qy_tree.epoch, memory_order_relaxed) ||
                    t->generation != atomic_load_explicit(&qy_rules.generation, memory_order_acquire)))
        return 0;
    // A handler that captures meanwhile learns nothing.
    atomic_store_explicit(&t->busy, true, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    uint32_t id = recall(t, from);
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(&t->busy, false, memory_order_relaxed);
    return id;
}

uint32_t qy_stack_capture_outside(const qy_stack_regs_t *from, qy_stack_emit_t emit, void *arg) {
    uint32_t known = qy_stack_recall(from);
    return QY_LIKELY(known != 0) ? known : stacks_capture(from, true, emit, arg);
}

QY_NOINLINE uint32_t qy_stack_capture(qy_stack_emit_t emit, void *arg) {
    qy_stack_regs_t here = QY_STACK_CALLER();
    return stacks_capture(&here, true, emit, arg);
}

// ---- the process ----------------------------------------------------------------------------------------

void qy_stacks_hold(qy_stacks_settle_t *settle) {
    atomic_store_explicit(&stacks.settle, settle, memory_order_release);
    atomic_fetch_add(&stacks.mode, HELD);
}

// A child that was forked within a hold has none any more.
void qy_stacks_open(void) {
    uint32_t mode = atomic_load(&stacks.mode);
    while (mode >= HELD && !atomic_compare_exchange_weak(&stacks.mode, &mode, mode - HELD)) {}
}

uint32_t qy_stacks_holds(void) { return atomic_load(&stacks.mode) / HELD; }

void qy_stacks_modules_changed(void) { qy_rules_flush(); }
void qy_stacks_unloaded(uintptr_t begin, uintptr_t bytes) { qy_tree_forget(begin, bytes); }

uint32_t qy_stacks_ids(void) { return qy_tree_ids(); }
bool qy_stacks_full(void) { return qy_tree.nodes && qy_tree_ids() == qy_tree.limit; }
uint32_t qy_stacks_seen(void) { return atomic_load_explicit(&qy_tree.seen, memory_order_relaxed); }

void qy_stacks_see(uint32_t id) {
    if (id > qy_stacks_seen()) atomic_store_explicit(&qy_tree.seen, id, memory_order_relaxed);
}

void qy_stacks_restart(void) {
    atomic_fetch_and(&stacks.mode, MODE);
    qy_tree_restart();
    qy_stack_threads_restart();
}

void qy_stacks_thread_end(void) { qy_stack_thread_release(); }

void qy_stacks_get_stats(qy_stacks_stats_t *ret) {
    uint32_t taken = atomic_load(&qy_tree.taken);
    *ret = (qy_stacks_stats_t){
        .captures = qy_stack_threads_sum(QY_STACK_CAPTURES),
        .reentered = qy_stack_threads_sum(QY_STACK_REENTERED),
        .full = qy_stack_threads_sum(QY_STACK_FULL),
        .failed = qy_stack_threads_sum(QY_STACK_FAILED) + atomic_load(&stacks.not_taken),
        .deep = qy_stack_threads_sum(QY_STACK_DEEP),
        .cut = qy_stack_threads_sum(QY_STACK_CUT),
        .joined = qy_stack_threads_sum(QY_STACK_JOINED),
        .frames = qy_stack_threads_sum(QY_STACK_FRAMES),
        .foreign = qy_stack_threads_sum(QY_STACK_FOREIGN),
        .doubled = atomic_load(&qy_tree.doubled),
        .nodes = taken < qy_tree.limit ? taken : qy_tree.limit,
        .limit = qy_tree.limit,
        .rules_made = atomic_load(&qy_rules.made),
        .memory = qy_tree_memory() + qy_rules_memory() + qy_stack_threads_memory(),
    };
}
