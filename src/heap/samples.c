// SPDX-License-Identifier: MIT
// samples.c: see samples.h.
#include "heap/samples.h"

#include <string.h>

#include "base/probe.h"
#include "heap/alloc.h"
#include "heap/cache.h"
#include "heap/guards.h"
#include "heap/heaps.h"
#include "heap/pace.h"
#include "heap/stats_page.h"
#include "os/module.h"
#include "os/os.h"
#include "rt/opts.h"
#include "rt/stats_page.h"
#include "stacks/own.h"
#include "stacks/stacks.h"
#include "stacks/stacks_tree.h"

typedef quarry_stats_page_event_t event_t;
typedef quarry_stats_page_sample_t sample_t;

#define EVENTS 65536u
#define LIVE 65536u
#define HEADS_FIRST 1024u  // and doubled as rows come into use: a short program touches one page of them
#define STACK_NODES 65536u
#define FORGET_NS UINT64_C(1000000000)

typedef struct tables {
    event_t event[EVENTS];
    sample_t live[LIVE];
    uint32_t next[LIVE];  // of live rows in a chain, or of free ones; 0 ends it
    uint32_t head[LIVE];  // of a chain, by address; the first `heads` of them count
} tables_t;

static struct {
    qy_lock_t lock;
    tables_t *tables;    // [lock] NULL: not yet, or there is no memory
    bool denied;         // [lock]
    uint32_t used;       // [lock] rows of live[] that were used, 0 among them
    uint32_t heads;      // [lock] a power of two, at least `used` but for the last row
    uint32_t spare;      // [lock] chain of free ones of these
    uint64_t forgot_ns;  // [lock] when what is known of the program's modules was forgotten last
    uint64_t lease;      // [lock] the number in the lease's word that was seen last, and ...
    uint64_t leased_ns;  // [lock] ... when it was seen first
    qy_pace_t pace;      // [lock]
} samples = {.pace = {.judges = QY_PACE_JUDGES}};

_Atomic(qy_heap_t *) qy_samples_heap;
_Atomic uint32_t qy_samples_live;

qy_lock_t *qy_samples_lock(void) { return &samples.lock; }

// A signal handler that allocates may have interrupted us.
static bool is_inside(void) { return qy_lock_is_mine(&samples.lock); }

static void samples_put(uint64_t *word, uint64_t value) { qy_stats_put(word, value); }
static void samples_put_half(uint32_t *half, uint32_t value) { __atomic_store_n(half, value, __ATOMIC_RELAXED); }

// As the options say. `serial` 0: so it is since the library's constructor ran.
static void switch_as_asked(uint64_t serial) {
    uint64_t on = serial << 8 | QY_DRAW_ON | (qy_opts.sample_adapts ? QY_DRAW_ADAPTS : 0);
    samples_put(
        &qy_stats_sampler.control, qy_opts.sample ? on | qy_log2_floor(qy_opts.sample) : qy_draw_usual());
    samples_put(&qy_stats_sampler.lease, 0);
}

void qy_samples_begin(void) { switch_as_asked(0); }

// ---- the tables ---------------------------------------------------------------------------------------------

static size_t samples_bytes(void) { return qy_round_up(sizeof(tables_t), qy_os_page_size()); }

static void tell_where(const tables_t *t) {
    quarry_stats_page_sampler_t *s = &qy_stats_sampler;
    samples_put(&s->event_rows, EVENTS);
    samples_put(&s->event_bytes, sizeof(event_t));
    samples_put(&s->live_rows, LIVE);
    samples_put(&s->live_bytes, sizeof(sample_t));
    samples_put(&s->node_rows, qy_tree.nodes ? qy_tree.limit + UINT64_C(1) : 0);
    samples_put(&s->node_bytes, sizeof(quarry_stats_page_node_t));
    samples_put(&s->nodes_at, (uintptr_t)qy_tree.nodes);
    samples_put(&s->live_at, (uintptr_t)t->live);
    __atomic_store_n(&s->events_at, (uintptr_t)t->event, __ATOMIC_RELEASE);
}
_Static_assert(sizeof(qy_stacks_node_t) == sizeof(quarry_stats_page_node_t) &&
                   offsetof(qy_stacks_node_t, parent) == offsetof(quarry_stats_page_node_t, parent),
    "nodes are read where they lie");

static tables_t *samples_start(void) {
    QY_NEEDS(&samples.lock);
    if (samples.tables || samples.denied) return samples.tables;
    tables_t *t = qy_os_map(samples_bytes(), qy_os_page_size(), NULL);
    samples.denied = !t;
    if (!t) return NULL;
    qy_own_add(t, samples_bytes());
    // Without, no stack is known.
    if (qy_os_module_may_be_asked()) qy_stacks_start(QY_STACKS_CFI, STACK_NODES);
    samples.used = 1;
    samples.heads = HEADS_FIRST;
    samples.tables = t;
    tell_where(t);
    return t;
}

static uint32_t *samples_head(tables_t *t, uintptr_t address) {
    return &t->head[(address >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 48 & (samples.heads - 1)];
}
_Static_assert(LIVE == 1u << 16, "samples_head");

static void samples_chain(tables_t *t, uint32_t row) {
    uint32_t *head = samples_head(t, t->live[row].address);
    t->next[row] = *head;
    *head = row;
}

// All rows are in use when this is called: there is no spare one.
static void samples_grow_heads(tables_t *t) {
    QY_NEEDS(&samples.lock);
    qy_assert(!samples.spare && samples.heads < LIVE);
    memset(t->head, 0, samples.heads * sizeof t->head[0]);
    samples.heads *= 2;
    for (uint32_t row = 1; row < samples.used; row++) samples_chain(t, row);
}

// The word that has the number of its row, which is 0 if it is not there.
static uint32_t *samples_find(tables_t *t, uintptr_t address) {
    uint32_t *at = samples_head(t, address);
    while (*at && t->live[*at].address != address) at = &t->next[*at];
    return at;
}

// A reader that was killed could not switch the sampler off. The clock is the process's own, so it does not matter what
// the reader's says.
static void samples_look_at_lease(uint64_t now) {
    QY_NEEDS(&samples.lock);
    uint64_t lease = __atomic_load_n(&qy_stats_sampler.lease, __ATOMIC_RELAXED), control = qy_draw_control();
    if (lease != samples.lease) {
        samples.lease = lease;
        samples.leased_ns = now;
    }
    if (!lease || now - samples.leased_ns < QUARRY_STATS_PAGE_SAMPLER_LEASE_NS) return;
    // A reader that has come since has written to both, in this order.
    if (__atomic_compare_exchange_n(
            &qy_stats_sampler.lease, &lease, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        __atomic_compare_exchange_n(
            &qy_stats_sampler.control, &control, qy_draw_usual(), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static void samples_keep_pace(uint32_t what, uint64_t now) {
    QY_NEEDS(&samples.lock);
    uint64_t control = qy_draw_control();
    uint32_t live = atomic_load_explicit(&qy_samples_live, memory_order_relaxed);
    bool birth = what == QUARRY_STATS_PAGE_EVENT_BIRTH;
    unsigned finest = qy_opts.sample ? qy_log2_floor(qy_opts.sample) : QY_PACE_FINEST;
    uint64_t wanted = qy_pace_next(&samples.pace, control, now, birth, live, LIVE, finest);
    // A reader may have written to it.
    if (wanted != control)
        __atomic_compare_exchange_n(
            &qy_stats_sampler.control, &control, wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static void samples_tell(tables_t *t, const sample_t *s, uint32_t what, uint64_t now) {
    QY_NEEDS(&samples.lock);
    samples_look_at_lease(now);
    uint64_t number = qy_stats_sampler.events;
    event_t *e = &t->event[number % EVENTS];
    samples_put(&e->turn, 0);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    samples_put(&e->time_ns, now);
    samples_put(&e->address, s->address);
    samples_put(&e->bytes, s->bytes);
    samples_put_half(&e->what, what);
    samples_put_half(&e->thread, (uint32_t)qy_os_thread_id_known());
    samples_put_half(&e->stack, s->stack);
    samples_put_half(&e->rate, s->rate);
    __atomic_store_n(&e->turn, number + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&qy_stats_sampler.events, number + 1, __ATOMIC_RELEASE);
    samples_keep_pace(what, now);
}

// ---- births and deaths --------------------------------------------------------------------------------------

// The tree is read where it lies.
static bool node_is_told(void *arg, uint32_t id, uint32_t parent, uintptr_t pc, bool is_return) {
    (void)arg, (void)id, (void)parent, (void)pc, (void)is_return;
    return true;
}

// What was learned from a module that was unloaded since must not be taken for what came in its place.
static void forget_modules(uint64_t now) {
    QY_NEEDS(&samples.lock);
    if (now - samples.forgot_ns < FORGET_NS) return;
    samples.forgot_ns = now;
    qy_stacks_modules_changed();
}

static bool samples_enter(tables_t *t, uintptr_t p, size_t n, unsigned rate, uint32_t stack) {
    QY_NEEDS(&samples.lock);
    uint32_t row = samples.spare;
    if (row) samples.spare = t->next[row];
    else if (samples.used < LIVE) {
        if (samples.used == samples.heads) samples_grow_heads(t);
        row = samples.used++;
    } else return false;
    uint64_t now = qy_os_now_ns();
    forget_modules(now);
    sample_t *s = &t->live[row];
    samples_put(&s->bytes, n);
    samples_put(&s->born_ns, now);
    samples_put_half(&s->stack, stack);
    samples_put_half(&s->rate, rate);
    samples_put_half(&s->thread, (uint32_t)qy_os_thread_id_known());
    __atomic_store_n(&s->address, p, __ATOMIC_RELEASE);  // last: who reads it has a whole one
    samples_chain(t, row);
    samples_tell(t, s, QUARRY_STATS_PAGE_EVENT_BIRTH, now);
    atomic_fetch_add_explicit(&qy_samples_live, 1, memory_order_relaxed);
    return true;
}

static bool enter(const void *p, size_t n, unsigned rate) {
    qy_lock_take(&samples.lock);
    tables_t *t = samples_start();
    qy_lock_drop(&samples.lock);
    if (!t) return false;
    // Late destructors of a thread would take memory that nobody gives back.
    uint32_t stack = qy_thread_state == QY_THREAD_DEAD ? 0 : qy_stack_capture(node_is_told, NULL);
    qy_lock_take(&samples.lock);
    bool entered = samples.tables == t && samples_enter(t, (uintptr_t)p, n, rate, stack);
    if (!entered) qy_stats_add(&qy_stats_sampler.lost, 1);
    qy_lock_drop(&samples.lock);
    if (entered) QY_PROBE3("otel_memory", "alloc", (uintptr_t)p, n, qy_draw_stands_for(rate, n));
    return entered;
}

static qy_heap_t *heap_of_samples(void) {
    qy_heap_t *h = atomic_load_explicit(&qy_samples_heap, memory_order_acquire), *none = NULL;
    if (h || !(h = qy_heap_new(QY_HEAP_FIRST_CLASS))) return h;
    memcpy(h->name, "samples", sizeof "samples");
    if (atomic_compare_exchange_strong(&qy_samples_heap, &none, h)) return h;
    qy_heap_recycle(h);
    return none;
}

static void *take_from_heap(size_t align, size_t n, unsigned rate, bool *ret_fresh) {
    qy_heap_t *h = is_inside() ? NULL : heap_of_samples();
    if (!h || qy_lock_is_mine(&h->lock)) return NULL;
    qy_heap_lock(h);
    void *p = qy_alloc_locked(h, align, n, ret_fresh);
    qy_heap_unlock(h);
    if (!p || enter(p, n, rate)) return p;
    qy_free_slow(p);
    return NULL;
}

// A block that is guarded is so whether it is told of or not.
QY_COLD static void *samples_take(size_t align, size_t n, unsigned rate, bool *ret_fresh) {
    bool told = qy_draw_is_told(qy_draw_control());
    void *p = qy_guards_alloc(align, n, ret_fresh);
    if (!p) return told ? take_from_heap(align, n, rate, ret_fresh) : NULL;
    if (told && !is_inside()) enter(p, n, rate);
    return p;
}

// A program that is served by its lists may come to no slow path for long, and what it counts would be of long ago.
QY_COLD void *qy_samples_take(size_t align, size_t n, unsigned rate, bool *ret_fresh) {
    void *p = samples_take(align, n, rate, ret_fresh);
    if (p) qy_stats_page_look(0);
    return p;
}

QY_COLD void *qy_samples_take_at_once(size_t align, size_t n, bool *ret_fresh) {
    uint64_t control = qy_draw_control();
    unsigned rate = qy_draw_rate(control);
    return (control & QY_DRAW_ON) && qy_draw_at_once(rate, n) ? qy_samples_take(align, n, rate, ret_fresh) : NULL;
}

QY_COLD void qy_samples_large(const void *p, size_t n) {
    uint64_t control = qy_draw_control();
    unsigned rate = qy_draw_rate(control);
    if (qy_draw_is_told(control) && !is_inside() && qy_draw_at_once(rate, n)) enter(p, n, rate);
}

QY_COLD void qy_samples_end(const void *p) {
    if (is_inside()) return;
    qy_lock_take(&samples.lock);
    tables_t *t = samples.tables;
    uint32_t *at = t ? samples_find(t, (uintptr_t)p) : NULL, row = at ? *at : 0;
    if (row) {
        sample_t *s = &t->live[row];
        samples_tell(t, s, QUARRY_STATS_PAGE_EVENT_DEATH, qy_os_now_ns());
        samples_put(&s->address, 0);
        __atomic_thread_fence(__ATOMIC_RELEASE);  // before the row is another's
        *at = t->next[row];
        t->next[row] = samples.spare;
        samples.spare = row;
        atomic_fetch_sub_explicit(&qy_samples_live, 1, memory_order_relaxed);
    }
    qy_lock_drop(&samples.lock);
    if (row) QY_PROBE1("otel_memory", "free", (uintptr_t)p);
}

QY_COLD void qy_samples_resized(const void *p, const void *q, size_t n) {
    if (qy_samples_any()) qy_samples_end(p);
    qy_samples_large(q, n);
}

// ---- fork ---------------------------------------------------------------------------------------------------

void qy_samples_after_fork(void) {
    switch_as_asked(1);  // what its parent allocated was sampled for its parent
    samples.pace = (qy_pace_t){.judges = QY_PACE_JUDGES};
    // Inside: a signal handler forked, and what it interrupted goes on with them.
    if (!samples.tables || is_inside()) return;
    samples_put(&qy_stats_sampler.events_at, 0);
    samples_put(&qy_stats_sampler.live_at, 0);
    samples_put(&qy_stats_sampler.nodes_at, 0);
    samples_put(&qy_stats_sampler.events, 0);
    samples_put(&qy_stats_sampler.lost, 0);
    qy_own_remove(samples.tables);
    qy_os_unmap(samples.tables, samples_bytes());
    samples.tables = NULL;
    samples.spare = 0;
    atomic_store_explicit(&qy_samples_live, 0, memory_order_relaxed);
    qy_stacks_restart();
}
