// SPDX-License-Identifier: MIT
// heaps.c: the set of heaps. A heap outlives its thread: it goes to a stack of idle heaps, with its
// slabs, tags and mailbox valid, and the next thread to start takes it as it is (last in, first
// out: warm in the cache). So a thread starts and ends without touching a slab, and a thread that
// takes over another's live set finds it local.
#include <string.h>

#include "heap/heaps.h"
#include "heap/sizeclass.h"
#include "pages/map.h"
#include "pages/meta.h"
#include "rt/opts.h"

#define SHARED_ARENAS_MAX 1024u

static struct {
    qy_lock_t lock;
    _Atomic(qy_heap_t *) all;
    qy_heap_t *idle;      // idle thread heaps
    qy_heap_t *recycled;  // destroyed first-class heaps
    unsigned next_arena;
    _Atomic uint32_t count;
    _Atomic uint32_t idle_count;
    _Atomic uint32_t threads;  // attached
    // Last: few processes use these, and all the rest is on one page.
    qy_heap_t *arenas[SHARED_ARENAS_MAX];
} heaps;

static _Atomic(qy_heap_t *) shared;
_Atomic size_t qy_heap_adoptions;

void qy_heap_lock(qy_heap_t *h) { qy_lock_take(&h->lock); }
void qy_heap_unlock(qy_heap_t *h) { qy_lock_drop(&h->lock); }
qy_heap_t *qy_heap_lock_of(const qy_slab_t *s) {
    for (;;) {
        qy_heap_t *h = atomic_load_explicit(&s->heap, memory_order_acquire);
        qy_heap_lock(h);
        if (QY_LIKELY(atomic_load_explicit(&s->heap, memory_order_relaxed) == h)) return h;
        qy_heap_unlock(h);
    }
}

static qy_heap_t *create_locked(qy_heap_kind_t kind) {
    QY_NEEDS(&heaps.lock);
    if (heaps.count >= QY_HEAP_ID_MAX) return NULL;
    qy_heap_t *h = qy_meta_alloc(sizeof *h);
    if (!h) return NULL;
    h->id = ++heaps.count;
    h->owner = qy_tag_owner(h->id) | (kind == QY_HEAP_FIRST_CLASS ? QY_TAG_FIRST_CLASS : 0);
    h->kind = (uint8_t)kind;
    qy_class_coarse(h->cls);
    atomic_store_explicit(&h->cls_version, 1, memory_order_relaxed);
    h->next = atomic_load_explicit(&heaps.all, memory_order_relaxed);
    atomic_store_explicit(&heaps.all, h, memory_order_release);
    return h;
}

qy_heap_t *qy_heap_attach(void) {
    qy_lock_take(&heaps.lock);
    qy_heap_t *h;
    if (qy_opts.arenas) {
        qy_heap_t **slot = &heaps.arenas[heaps.next_arena++ % qy_opts.arenas];
        if (!*slot) *slot = create_locked(QY_HEAP_THREAD);
        h = *slot;
    } else if ((h = heaps.idle)) {
        heaps.idle = h->idle_next;
        heaps.idle_count--;
        atomic_fetch_add_explicit(&qy_heap_adoptions, 1, memory_order_relaxed);
    } else {
        h = create_locked(QY_HEAP_THREAD);
    }
    if (h) {
        h->threads++;
        atomic_fetch_add_explicit(&heaps.threads, 1, memory_order_relaxed);
        atomic_store_explicit(&h->idle, false, memory_order_relaxed);
    }
    qy_lock_drop(&heaps.lock);
    return h;
}

static void make_idle_locked(qy_heap_t *h) {
    QY_NEEDS(&heaps.lock);
    h->idle_next = heaps.idle;
    heaps.idle = h;
    heaps.idle_count++;
    atomic_store_explicit(&h->idle, true, memory_order_relaxed);
}

static void take_from_idle_locked(qy_heap_t *h) {
    QY_NEEDS(&heaps.lock);
    qy_heap_t **at = &heaps.idle;
    while (*at && *at != h) at = &(*at)->idle_next;
    if (!*at) return;
    *at = h->idle_next;
    heaps.idle_count--;
    atomic_store_explicit(&h->idle, false, memory_order_relaxed);
}

void qy_heap_detach(qy_heap_t *h) {
    qy_lock_take(&heaps.lock);
    // Shared arenas stay with their slot, but who sends them mail is told that nobody will look.
    atomic_fetch_sub_explicit(&heaps.threads, 1, memory_order_relaxed);
    if (--h->threads == 0) {
        if (qy_opts.arenas) atomic_store_explicit(&h->idle, true, memory_order_relaxed);
        else make_idle_locked(h);
    }
    qy_lock_drop(&heaps.lock);
}

qy_heap_t *qy_heap_new(qy_heap_kind_t kind) {
    qy_lock_take(&heaps.lock);
    qy_heap_t *h = heaps.recycled;
    if (h) {
        heaps.recycled = h->idle_next;
        qy_class_coarse(h->cls);
    } else {
        h = create_locked(kind);
    }
    if (h) h->kind = (uint8_t)kind;
    qy_lock_drop(&heaps.lock);
    return h;
}

void qy_heap_recycle(qy_heap_t *h) {
    qy_lock_take(&heaps.lock);
    h->limit = 0;
    h->made_bytes = 0;
    h->reclaim_at = 0;
    h->idle_next = heaps.recycled;
    heaps.recycled = h;
    qy_lock_drop(&heaps.lock);
}

qy_heap_t *qy_heap_shared(void) {
    qy_heap_t *h = atomic_load_explicit(&shared, memory_order_acquire);
    if (h) return h;
    qy_lock_take(&heaps.lock);
    h = atomic_load_explicit(&shared, memory_order_relaxed);
    if (!h && (h = create_locked(QY_HEAP_SHARED))) {
        // No thread of its own will ever drain its mailbox, so whoever sends to it does.
        atomic_store_explicit(&h->idle, true, memory_order_relaxed);
        atomic_store_explicit(&shared, h, memory_order_release);
    }
    qy_lock_drop(&heaps.lock);
    return h;
}

bool qy_heaps_any_idle(bool (*fn)(qy_heap_t *idle, void *arg), void *arg) {
    if (!heaps.idle_count || !qy_lock_try(&heaps.lock)) return false;
    bool any = false;
    int tries = 8;
    for (qy_heap_t *idle = heaps.idle; idle && tries && !any; idle = idle->idle_next, tries--) {
        if (!qy_heap_trylock(idle)) continue;
        any = fn(idle, arg);
        qy_lock_drop(&idle->lock);
    }
    qy_lock_drop(&heaps.lock);
    return any;
}

qy_heap_t *qy_heap_first(void) { return atomic_load_explicit(&heaps.all, memory_order_acquire); }

qy_lock_t *qy_heaps_lock(void) { return &heaps.lock; }

void qy_heaps_after_fork(qy_heap_t *mine) {
    atomic_store_explicit(&heaps.threads, mine != NULL, memory_order_relaxed);
    for (qy_heap_t *h = qy_heap_first(); h; h = h->next) {
        if (h->kind != QY_HEAP_THREAD) continue;
        // Somebody was at work in it, and may have left anything (fork.c): nobody shall have it.
        if (!qy_lock_is_frozen(&h->lock) && !qy_lock_is_mine(&h->lock)) {
            if (!h->threads) take_from_idle_locked(h);
            for (unsigned i = 0; i < qy_opts.arenas; i++)
                if (heaps.arenas[i] == h) heaps.arenas[i] = NULL;
            continue;
        }
        if (!h->threads) continue;
        h->threads = h == mine;
        if (h == mine) continue;
        if (qy_opts.arenas) {  // as in qy_heap_detach
            atomic_store_explicit(&h->idle, true, memory_order_relaxed);
            continue;
        }
        make_idle_locked(h);
        atomic_store_explicit(&h->tiny_at, h->name, memory_order_relaxed);  // for qy_tiny_mend
    }
}

size_t qy_heaps_threads(void) { return atomic_load_explicit(&heaps.threads, memory_order_relaxed); }
size_t qy_heaps_made(void) { return atomic_load_explicit(&heaps.count, memory_order_relaxed); }

size_t qy_heaps_count(size_t *ret_idle) {
    qy_lock_take(&heaps.lock);
    size_t n = heaps.count;
    *ret_idle = heaps.idle_count;
    for (qy_heap_t *h = heaps.recycled; h; h = h->idle_next) n--;
    qy_lock_drop(&heaps.lock);
    return n;
}
