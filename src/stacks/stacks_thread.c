// SPDX-License-Identifier: MIT
// stacks_thread.c: the memory of threads, from first capture to end.
#include "stacks/stacks_thread.h"

#include "base/num.h"
#include "os/os.h"
#include "stacks/own.h"

_Thread_local _Atomic(qy_stack_thread_t *) qy_stack_thread_self;

#define AREA_MOST 1024u

static struct {
    _Atomic(qy_stack_thread_t *) all;
    _Atomic(qy_stack_thread_t *) hint;  // the one that became idle last
    _Atomic(qy_stack_thread_t *) area;  // the first one of the newest area
    _Atomic uint32_t room, idle;        // of all areas; now
} stack_thread_threads;

static size_t thread_bytes(void) { return qy_round_up(sizeof(qy_stack_thread_t), qy_os_page_size()); }

static bool stack_thread_take(qy_stack_thread_t *t) {
    bool free = false;
    if (!t || !atomic_compare_exchange_strong(&t->owned, &free, true)) return false;
    atomic_fetch_sub(&stack_thread_threads.idle, 1);
    return true;
}

static qy_stack_thread_t *take_idle(void) {
    if (!atomic_load(&stack_thread_threads.idle)) return NULL;
    qy_stack_thread_t *t = atomic_load(&stack_thread_threads.hint);
    if (stack_thread_take(t)) return t;
    for (t = atomic_load(&stack_thread_threads.all); t; t = t->next)
        if (!atomic_load_explicit(&t->owned, memory_order_relaxed) && stack_thread_take(t)) return t;
    return NULL;
}

// An area for as many as there are, so that the ranges are few (own.h). Where address space is limited, for one. A
// thread touches a small part of its own, as a huge page does not.
static qy_stack_thread_t *area_map(uint32_t *n) {
    *n = (uint32_t)qy_min(qy_max(atomic_load(&stack_thread_threads.room), 1), AREA_MOST);
    qy_stack_thread_t *area = qy_os_map(*n * thread_bytes(), qy_os_page_size(), NULL);
    if (!area) area = qy_os_map(thread_bytes(), qy_os_page_size(), NULL), *n = 1;
    if (*n > 1) qy_os_advise_huge(area, *n * thread_bytes(), false);
    if (area) area->room = *n - 1;
    return area;
}

// The first one in an area is of the thread that has mapped it.
static qy_stack_thread_t *stack_thread_cut(void) {
    for (qy_stack_thread_t *area = atomic_load(&stack_thread_threads.area);;) {
        uint32_t i = area ? atomic_fetch_add(&area->cut, 1) : 0, n;
        if (area && i < area->room) return (qy_stack_thread_t *)(void *)((char *)area + (i + 1) * thread_bytes());
        qy_stack_thread_t *more = area_map(&n);
        if (!more) return NULL;
        if (atomic_compare_exchange_strong(&stack_thread_threads.area, &area, more)) {
            qy_own_add(more, n * thread_bytes());
            atomic_fetch_add(&stack_thread_threads.room, n);
            return more;
        }
        qy_os_unmap(more, n * thread_bytes());  // another thread was quicker
    }
}

static qy_stack_thread_t *stack_thread_make(void) {
    qy_stack_thread_t *t = stack_thread_cut();
    if (!t) return NULL;
    atomic_store_explicit(&t->owned, true, memory_order_relaxed);
    t->next = atomic_load(&stack_thread_threads.all);
    while (!atomic_compare_exchange_weak(&stack_thread_threads.all, &t->next, t)) {}
    return t;
}

static void stack_thread_release(qy_stack_thread_t *t) {
    atomic_store(&t->owned, false);
    atomic_fetch_add(&stack_thread_threads.idle, 1);
    atomic_store(&stack_thread_threads.hint, t);
}

static QY_COLD qy_stack_thread_t *stack_thread_attach(void) {
    qy_stack_thread_t *t = take_idle();
    if (!t) t = stack_thread_make();
    if (!t) return NULL;
    t->bounds = (qy_bounds_t){0};
    t->trail.frames = t->trail.words = 0;
    for (unsigned i = 0; i < QY_RECALL_WALKS; i++) t->recall[i].sp = 0;
    qy_stack_thread_t *mine = NULL;
    if (atomic_compare_exchange_strong(&qy_stack_thread_self, &mine, t)) return t;
    stack_thread_release(t);  // a signal handler was quicker
    return mine;
}

qy_stack_thread_t *qy_stack_thread(void) {
    qy_stack_thread_t *t = atomic_load_explicit(&qy_stack_thread_self, memory_order_relaxed);
    return QY_LIKELY(t != NULL) ? t : stack_thread_attach();
}

void qy_stack_thread_release(void) {
    qy_stack_thread_t *t = atomic_load_explicit(&qy_stack_thread_self, memory_order_relaxed);
    if (!t || atomic_load_explicit(&t->busy, memory_order_relaxed)) return;
    atomic_store_explicit(&qy_stack_thread_self, NULL, memory_order_relaxed);
    stack_thread_release(t);
}

void qy_stack_threads_restart(void) {
    qy_stack_thread_t *mine = atomic_load_explicit(&qy_stack_thread_self, memory_order_relaxed);
    uint32_t idle = 0;
    for (qy_stack_thread_t *t = atomic_load(&stack_thread_threads.all); t; t = t->next) {
        if (t == mine) continue;
        atomic_store(&t->busy, false);
        atomic_store(&t->owned, false);
        idle++;
    }
    atomic_store(&stack_thread_threads.idle, idle);
}

uint64_t qy_stack_threads_sum(qy_stack_count_t count) {
    uint64_t sum = 0;
    for (const qy_stack_thread_t *t = atomic_load(&stack_thread_threads.all); t; t = t->next)
        sum += atomic_load_explicit(&t->counts[count], memory_order_relaxed);
    return sum;
}

uint64_t qy_stack_threads_memory(void) { return atomic_load(&stack_thread_threads.room) * thread_bytes(); }
