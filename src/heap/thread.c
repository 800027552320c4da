// SPDX-License-Identifier: MIT
// thread.c: a thread gets a heap on its first slow call and lets go of it as late as its exit
// allows. After that (destructors that run even later, frees by libc's own thread teardown) it works
// on the shared heap under its lock: nothing is created again, so nothing leaks.
#include <string.h>

#include "heap/atfork.h"
#include "heap/cache.h"
#include "heap/cache_flush.h"
#include "heap/draw.h"
#include "heap/heaps.h"
#include "heap/link.h"
#include "heap/lists.h"
#include "heap/moved.h"
#include "heap/remote.h"
#include "heap/sizeclass.h"
#include "heap/stats_cache.h"
#include "heap/stats_page.h"
#include "heap/tiny.h"
#include "os/os.h"
#include "pages/chunk.h"
#include "pages/map.h"
#include "pages/meta.h"
#include "rt/opts.h"
#include "stacks/stacks.h"

static const qy_cache_t cache_none = {.head = {&qy_link_end}, .key = QY_TAG_NO_OWNER, .tiny = &qy_tiny_none};
__thread qy_cache_t *qy_cache_tls = (qy_cache_t *)&cache_none;
__thread volatile qy_thread_state_t qy_thread_state;

// False while the first thread's variables have no first values yet. What is written to any of them then is lost.
static __thread bool has_image = true;

void qy_thread_early(void) {
    if (!qy_cache_tls) qy_cache_tls = (qy_cache_t *)&cache_none;
}

// A record has a page of its own: a thread's cache shares none with another's. So that no other metadata comes in
// between and fills pages in part, several are taken at once, as many as there are, with what only some threads touch
// behind all of them, and behind that what few threads touch.
#define RECORDS_MOST 32u
#define SEEN_BYTES (QY_TINY_SEEN * sizeof(qy_tiny_seen_t))
_Static_assert(sizeof(qy_thread_t) <= QY_META_PAGE, "a record fits into a page");
static struct {
    qy_lock_t lock;
    qy_thread_t *spare;
    char *fresh;  // records that were never used, ...
    qy_thread_more_t *more;
    qy_tiny_seen_t *seen;
    size_t left;  // ... so many
    size_t made;
    _Atomic(qy_thread_t *) all;
} records;

qy_thread_t *qy_thread_first(void) { return atomic_load_explicit(&records.all, memory_order_acquire); }

// While the thread has a heap that its cache does not say. A signal handler that forks asks.
static __thread volatile bool moving;
bool qy_thread_is_moving(void) { return moving; }

static qy_thread_t *fresh_locked(void) {
    QY_NEEDS(&records.lock);
    if (!records.left) {
        size_t n = qy_min(qy_max(records.made, 1), RECORDS_MOST);
        char *p = qy_meta_alloc_apart(n * (QY_META_PAGE + sizeof *records.more + SEEN_BYTES));
        if (!p) return NULL;
        records.fresh = p;
        records.more = (qy_thread_more_t *)(void *)(p + n * QY_META_PAGE);
        records.seen = (qy_tiny_seen_t *)(void *)(records.more + n);
        records.made += records.left = n;
    }
    qy_thread_t *t = (qy_thread_t *)(void *)records.fresh;
    t->prev = records.more->prev;
    t->pend = records.more->pend;
    t->tiny_groups = records.more->tiny_groups;
    t->tiny_seen = records.seen;
    t->cached_of = records.more->cached_of;
    records.fresh += QY_META_PAGE;
    records.more++;
    records.seen += QY_TINY_SEEN;
    records.left--;
    t->all_next = atomic_load_explicit(&records.all, memory_order_relaxed);
    atomic_store_explicit(&records.all, t, memory_order_release);
    return t;
}

static qy_thread_t *thread_record_new(void) {
    qy_lock_take(&records.lock);
    qy_thread_t *t = records.spare;
    if (t) {
        records.spare = t->next;
        // What `prev` and `pend` point to is empty: given up, and handed over.
        memset(t, 0, offsetof(qy_thread_t, prev));
        qy_tiny_forget(t);
    } else {
        t = fresh_locked();
    }
    qy_lock_drop(&records.lock);
    return t;
}

static void thread_record_delete(qy_thread_t *t) {
    qy_lock_take(&records.lock);
    t->next = records.spare;
    records.spare = t;
    qy_lock_drop(&records.lock);
}

qy_lock_t *qy_thread_lock(void) { return &records.lock; }

static void use_tiny(qy_thread_t *t) {
    QY_NEEDS(&t->heap->lock);
    // A heap of several threads has no owner who alone may write to the bits.
    t->tiny_on = qy_opts.tiny && (qy_opts.tiny == 1 || t->heap->tiny) && qy_opts.tcache && !qy_opts.arenas;
    memset(t->cache.small + 1, t->tiny_on ? 0 : t->cache.cls[1], QY_TINY);
}

static void copy_classes_locked(qy_thread_t *t) {
    QY_NEEDS(&t->heap->lock);
    memcpy(t->cache.cls, t->heap->cls, sizeof t->heap->cls);
    for (unsigned i = 1; i <= QY_CLASS_SMALL; i++) memset(t->cache.small + 16 * i - 15, t->heap->cls[i], 16);
    use_tiny(t);
    // Until they are copied, frees of such blocks take the slow path.
    for (unsigned c = QY_CLASS_LEARNED; c < QY_CLASS_TINY; c++) {
        if (!(t->heap->learned >> (c - QY_CLASS_LEARNED) & 1) || t->cache.magic[c] != QY_START_NONE) continue;
        t->cache.magic[c] = qy_class_magic[c];
        qy_draw_set_room(t, c, qy_budget_limit(c));
    }
    t->cls_version = atomic_load_explicit(&t->heap->cls_version, memory_order_relaxed);
}

void qy_cache_refresh_classes(qy_thread_t *t) {
    uint32_t version = atomic_load_explicit(&t->heap->cls_version, memory_order_acquire);
    if (version == t->cls_version) return;
    qy_heap_lock(t->heap);
    copy_classes_locked(t);
    qy_heap_unlock(t->heap);
}

// ---- life -------------------------------------------------------------------------------------

static void let_go(qy_thread_t *t, qy_thread_state_t state) {
    // From here on the fast paths find nothing and ask; the state tells them whom.
    qy_moved(t, qy_lists_leave(t));
    qy_stats_cache_emptied(t);
    qy_stacks_thread_end();
    qy_budget_leave();
    moving = true;
    qy_thread_state = state;
    qy_cache_tls = (qy_cache_t *)&cache_none;
    qy_heap_t *h = t->heap;
    qy_heap_detach(h);
    moving = false;
    thread_record_delete(t);
    // Mail that came after the flush and before the heap was seen to be idle.
    QY_FENCE_AFTER_RMW();
    if (qy_heap_trylock(h)) {
        qy_remote_drain(h);
        qy_lock_drop(&h->lock);
    }
}

// What comes with the key may be of another heap: a copy of this library in a namespace of its own (dlmopen) has a C
// library of its own, which knows nothing of the keys of this one, and writes to the same places of the thread.
static void thread_exit(void *unused) {
    (void)unused;
    qy_thread_t *t = QY_CACHE->thread;
    if (t) let_go(t, QY_THREAD_DEAD);
}

// A try is expensive where it must be undone: it is made in one of so many calls then.
#define TRY_AGAIN 256u
static _Atomic unsigned untold;  // calls since libc would not tell when a thread ends, + 1; 0: it did last time

static void use_options(qy_thread_t *t) {
    // No owner sends every free to the slow path, and with empty lists every malloc too.
    t->cache.key = qy_opts.tcache ? t->heap->owner : QY_TAG_NO_OWNER;
    qy_heap_lock(t->heap);
    use_tiny(t);
    qy_heap_unlock(t->heap);
}

static qy_thread_t *attach(void) {
    qy_thread_t *t = thread_record_new();
    if (!t) return NULL;
    moving = true;
    t->heap = qy_heap_attach();
    if (!t->heap) {
        moving = false;
        thread_record_delete(t);
        return NULL;
    }
    qy_cache_t *cache = &t->cache;
    cache->head[0] = &qy_link_end;
    cache->tiny = &qy_tiny_none;
    // Not of what is learned, perhaps just now: copy_classes_locked has that.
    memcpy(cache->magic, qy_class_magic, QY_CLASS_LEARNED * sizeof *cache->magic);
    for (unsigned c = QY_CLASS_LEARNED; c <= QY_CLASS_SLAB_64K; c++) cache->magic[c] = QY_START_NONE;
    cache->magic[0] = QY_START_NONE;
    cache->start_most = QY_START_MOST;
    qy_budget_enter();
    for (unsigned c = 0; c < QY_CLASS_COUNT; c++) {
        bool known = c - 1 < QY_CLASS_LEARNED - 1;
        qy_draw_set_room_of(cache, c, !known ? 0 : qy_budget_is_short() ? qy_budget_limit(c)
                                                                        : qy_class_limit[c]);
    }
    cache->thread = t;
    atomic_signal_fence(memory_order_release);  // a handler that allocates may have it from here on
    qy_cache_tls = cache;
    moving = false;
    qy_heap_lock(t->heap);
    qy_lists_inherit(t);
    copy_classes_locked(t);
    qy_heap_unlock(t->heap);
    use_options(t);
    qy_thread_state = QY_THREAD_LIVE;  // complete: registering the exit may allocate
    if (qy_draw_has_say(t)) qy_draw_look(t);
    // The main thread's heap lasts as long as the process.
    if (QY_UNLIKELY(!qy_os_is_first_thread())) qy_atfork_thread();
    bool told = qy_os_is_first_thread() || qy_os_at_thread_exit(thread_exit, t);
    if (QY_UNLIKELY(!told || atomic_load_explicit(&untold, memory_order_relaxed)))
        atomic_store_explicit(&untold, !told, memory_order_relaxed);
    if (QY_LIKELY(told)) return t;
    // Nobody would say when the thread ends: it shares the heap of those without, and asks again.
    let_go(t, QY_THREAD_NONE);
    return NULL;
}

static bool is_worth_a_try(void) {
    unsigned n = atomic_load_explicit(&untold, memory_order_relaxed);
    if (QY_LIKELY(!n)) return true;
    atomic_store_explicit(&untold, n + 1 ? n + 1 : 1, memory_order_relaxed);  // a race costs a try
    return n % TRY_AGAIN == 0;
}

qy_thread_t *qy_thread_get(void) {
    if (QY_LIKELY(qy_thread_state == QY_THREAD_LIVE)) return QY_CACHE->thread;
    if (qy_thread_state != QY_THREAD_NONE || !has_image || !qy_heap_init() || !is_worth_a_try()) return NULL;
    qy_thread_state = QY_THREAD_ATTACHING;
    qy_thread_t *t = attach();
    if (!t) qy_thread_state = QY_THREAD_NONE;
    return t;
}

void qy_thread_options_changed(void) {
    if (qy_thread_state != QY_THREAD_LIVE) return;
    qy_thread_flush(QY_CACHE->thread);
    use_options(QY_CACHE->thread);
}

void qy_cache_each(void (*fn)(qy_block_t *b, void *arg), void *arg) {
    if (qy_thread_state != QY_THREAD_LIVE) return;
    qy_thread_t *t = QY_CACHE->thread;
    for (unsigned c = 1; c < QY_CLASS_COUNT; c++) {
        for (qy_block_t *b = qy_cache_list(&t->cache, c); b; b = qy_link_next(b)) fn(b, arg);
        for (qy_block_t *b = t->prev[c]; b; b = qy_link_next(b)) fn(b, arg);
    }
    for (unsigned i = 0; t->pend_bytes && i < QY_PEND_COUNT; i++)
        if (t->pend[i].slab)
            for (qy_block_t *b = t->pend[i].first; b; b = qy_link_next(b)) fn(b, arg);
}

static void add_block(qy_block_t *b, void *arg) {
    size_t *sum = arg;
    qy_chunk_t *chunk = qy_map_chunk(b);
    qy_slab_t *s = chunk ? qy_chunk_span(chunk, b) : NULL;
    if (s && s->kind == QY_SPAN_SLAB) {
        sum[0]++;
        sum[1] += qy_class_size[s->cls];
    }
}

size_t qy_cache_bytes(size_t *ret_blocks) {
    size_t sum[2] = {0, 0};
    qy_cache_each(add_block, sum);
    *ret_blocks = sum[0];
    return sum[1];
}
