// SPDX-License-Identifier: MIT
// tiny_fast.c: malloc and free of blocks of 8 bytes, without the heap's lock; see tiny.h.
#include "heap/tiny.h"

#include <string.h>

#include "heap/alloc.h"
#include "heap/draw.h"
#include "heap/heaps.h"
#include "heap/lookup.h"
#include "heap/moved.h"
#include "heap/remote.h"
#include "heap/samples.h"
#include "heap/sizeclass.h"
#include "heap/waste.h"
#include "pages/map.h"
#include "rt/diag.h"

qy_tiny_word_t qy_tiny_none;

// ---- malloc -------------------------------------------------------------------------------------------------

// A block of the current word, NULL if it has none.
QY_INLINE void *tiny_pop(qy_cache_t *cache) {
    qy_tiny_word_t *w = cache->tiny;
    uint64_t free = atomic_load_explicit(&w->free, memory_order_relaxed);
    if (QY_UNLIKELY(!free)) return NULL;
    atomic_store_explicit(&w->free, free & (free - 1), memory_order_relaxed);
    return cache->tiny_at + (size_t)__builtin_ctzll(free) * QY_TINY;
}

// The word becomes the current one.
static void use_word(qy_thread_t *t, qy_slab_t *s, size_t w) {
    t->tiny_slab = s;
    t->cache.tiny_at = s->base + w * QY_TINY_WORD_BYTES;
    t->cache.tiny = &s->tiny->word[w];
    // Before a block of it is given out: who sees all of them freed sees this (qy_tiny_take_in).
    atomic_store_explicit(&t->heap->tiny_at, t->cache.tiny_at, memory_order_relaxed);
}

bool qy_tiny_next_word(qy_thread_t *t, qy_slab_t *s) {
    for (unsigned k = 0; k < 2; k++) {
        uint64_t some = atomic_load_explicit(&s->tiny->some[k], memory_order_relaxed);
        if (!some) continue;
        unsigned w = k * 64 + (unsigned)__builtin_ctzll(some);
        atomic_store_explicit(&s->tiny->some[k], some & (some - 1), memory_order_relaxed);
        use_word(t, s, w);
        return true;
    }
    return false;
}

// While the sampler is on: is this request one that it wants? As if each block came onto a list now (draw.h).
QY_COLD static void *tiny_drawn(size_t n) {
    qy_thread_t *t = QY_CACHE->thread;
    bool fresh = false;
    return qy_draw_tiny(t, n) ? qy_samples_take(QY_ALIGN_MIN, n, qy_draw_rate(t->drawn), &fresh) : NULL;
}

// The current word has none.
QY_NOINLINE static void *tiny_more(size_t n) {
    qy_thread_t *t = QY_CACHE->thread;
    void *p = NULL;
    size_t moved = 0;
    while (!(p = tiny_pop(&t->cache))) {
        if (t->tiny_slab && qy_tiny_next_word(t, t->tiny_slab)) continue;
        if (!qy_tiny_refill(t)) return qy_aligned_alloc(QY_ALIGN_MIN, n);
        moved += QY_TINY_PAGE;
    }
    if (moved) qy_moved(t, moved);
    return p;
}

void *qy_tiny_malloc(size_t n) {
    void *p = NULL;
    if (qy_draw_is_wanted() && QY_UNLIKELY(!qy_draw_passes(QY_CACHE->thread, QY_CLASS_TINY))) p = tiny_drawn(n);
    if (QY_LIKELY(!p)) p = tiny_pop(QY_CACHE);
    return QY_LIKELY(p != NULL) ? p : tiny_more(n);
}

void *qy_tiny_calloc(size_t n) {
    void *p = qy_tiny_malloc(n);
    return p ? memset(p, 0, n) : NULL;
}

// ---- free by the owner ----------------------------------------------------------------------------------------

// Words of pages are loaded one by one; the owner is the only one who writes to them.
static bool is_all_free(const qy_tiny_t *tiny, unsigned page) {
    const qy_tiny_word_t *w = &tiny->word[page * QY_TINY_PAGE_WORDS];
    for (unsigned i = 0; i < QY_TINY_PAGE_WORDS; i++)
        if (~atomic_load_explicit(&w[i].free, memory_order_relaxed)) return false;
    return true;
}

// The word w has its first free block, or its last block is free now.
QY_NOINLINE static void word_changed(qy_thread_t *t, qy_slab_t *s, size_t w, uint64_t free) {
    qy_tiny_t *tiny = s->tiny;
    if (&tiny->word[w] == t->cache.tiny) return;  // malloc looks at it before all others
    // What was freed last is given out next, where nothing else is left: random frees and mallocs in turns go through
    // no lock.
    if (~free && !atomic_load_explicit(&t->cache.tiny->free, memory_order_relaxed)) {
        use_word(t, s, w);
        return;
    }
    if (~free) {
        bool any = qy_tiny_any(s);
        uint64_t some = atomic_load_explicit(&tiny->some[w / 64], memory_order_relaxed);
        atomic_store_explicit(&tiny->some[w / 64], some | UINT64_C(1) << (w % 64), memory_order_relaxed);
        if (!any) qy_tiny_has_some(t->heap, s);
        return;
    }
    unsigned page = (unsigned)(w / QY_TINY_PAGE_WORDS);
    bool current = t->tiny_slab == s && (size_t)(t->cache.tiny - tiny->word) / QY_TINY_PAGE_WORDS == page;
    if (current || !is_all_free(tiny, page)) return;
    qy_tiny_page_home(t->heap, s, page);
    qy_moved(t, QY_TINY_PAGE);
}

// Says what is wrong with p, and ends the process.
QY_COLD static void misfreed(void *p) {
    (void)qy_lookup_must(p);
    qy_fatal(QY_FAULT_DOUBLE_FREE, p, "block of %z byte%S", QY_TINY);
}

QY_INLINE void free_own(qy_thread_t *t, const qy_tiny_seen_t *in, void *p) {
    size_t offset = (size_t)((char *)p - in->base), w = offset / QY_TINY_WORD_BYTES;
    qy_tiny_word_t *word = &in->tiny->word[w];
    uint64_t bit = UINT64_C(1) << (offset / QY_TINY % 64),
             free = atomic_load_explicit(&word->free, memory_order_relaxed),
             remote = atomic_load_explicit(&word->remote, memory_order_relaxed);
    if (QY_UNLIKELY(((free | remote) & bit) || offset % QY_TINY)) misfreed(p);
    atomic_store_explicit(&word->free, free | bit, memory_order_relaxed);
    if (QY_UNLIKELY(!free || !~(free | bit))) word_changed(t, in->slab, w, free | bit);
}

static qy_tiny_seen_t seen_of(qy_slab_t *s) {
    return (qy_tiny_seen_t){s->base, (size_t)s->units << QY_UNIT_SHIFT, s->tiny, s};
}

QY_NOINLINE static void free_elsewhere(qy_thread_t *t, void *p) {
    qy_chunk_t *chunk = qy_map_chunk(p);
    qy_slab_t *s = chunk ? qy_chunk_span(chunk, p) : NULL;
    if (QY_UNLIKELY(!s || s->cls != QY_CLASS_TINY)) misfreed(p);
    t->tiny_seen = seen_of(s);
    free_own(t, &t->tiny_seen, p);
}

void qy_tiny_free(void *p) {
    qy_thread_t *t = QY_CACHE->thread;
    if (QY_LIKELY((size_t)((char *)p - t->tiny_seen.base) < t->tiny_seen.bytes)) free_own(t, &t->tiny_seen, p);
    else free_elsewhere(t, p);
}

// ---- free by another thread -------------------------------------------------------------------------------------

#define GROUP_OPEN (UINT64_C(1) << QY_REMOTE_COUNT_SHIFT)  // one group, in the remote word
#define GROUP_MOST QY_TINY_PAGE_BLOCKS

static void open_group(qy_tiny_group_t *g, qy_slab_t *s) {
    atomic_fetch_add_explicit(&s->remote, GROUP_OPEN, memory_order_relaxed);
    *g = (qy_tiny_group_t){.slab = s};
}

// The owner is told of the group's frees; it stays open, or is closed.
static void tell_group(qy_tiny_group_t *g, bool close) {
    qy_slab_t *s = g->slab;
    size_t bytes = g->untold * QY_TINY;
    if (close) g->slab = NULL;
    g->untold = 0;
    // Of a group that is open, or of a slab with QUEUED set, the heap stays. Afterwards, unless we queue it, the slab
    // may vanish.
    qy_heap_t *h = atomic_load_explicit(&s->heap, memory_order_acquire);
    uint64_t word = atomic_load_explicit(&s->remote, memory_order_relaxed), next;
    do next = (word - (close ? GROUP_OPEN : 0)) | (bytes ? QY_REMOTE_QUEUED : 0);
    while (
        !atomic_compare_exchange_weak_explicit(&s->remote, &word, next, memory_order_acq_rel, memory_order_relaxed));
    qy_remote_mail(h, bytes && !(word & QY_REMOTE_QUEUED) ? s : NULL, bytes);
}

void qy_tiny_tell(qy_thread_t *t) {
    for (; t->tiny_open; t->tiny_open &= (uint8_t)(t->tiny_open - 1))
        tell_group(&t->tiny_groups[__builtin_ctz(t->tiny_open)], true);
}

// Descriptors of slabs that were made one after the other are neighbours.
QY_INLINE unsigned group_of(const qy_slab_t *s) {
    return (unsigned)((uintptr_t)s / sizeof *s % QY_TINY_GROUPS);
}

QY_NOINLINE static qy_tiny_group_t *other_group(qy_thread_t *t, qy_slab_t *s) {
    unsigned i = group_of(s);
    if (t->tiny_groups[i].slab) tell_group(&t->tiny_groups[i], true);
    open_group(&t->tiny_groups[i], s);
    t->tiny_open |= (uint8_t)(1u << i);
    return &t->tiny_groups[i];
}

// False: it is free already, or no block.
QY_INLINE bool set_remote(qy_slab_t *s, void *p) {
    size_t offset = (size_t)((char *)p - s->base);
    qy_tiny_word_t *word = &s->tiny->word[offset / QY_TINY_WORD_BYTES];
    uint64_t bit = UINT64_C(1) << (offset / QY_TINY % 64);
    if (QY_UNLIKELY(offset % QY_TINY || (atomic_load_explicit(&word->free, memory_order_relaxed) & bit))) return false;
    // What the block held was read and written before.
    return !(atomic_fetch_or_explicit(&word->remote, bit, memory_order_acq_rel) & bit);
}

bool qy_tiny_free_remote(qy_thread_t *t, void *p) {
    qy_chunk_t *chunk = qy_map_chunk(p);
    qy_slab_t *s = chunk ? qy_chunk_span(chunk, p) : NULL;
    if (QY_UNLIKELY(!s || s->cls != QY_CLASS_TINY || s->kind != QY_SPAN_SLAB)) return false;
    qy_tiny_group_t *g = &t->tiny_groups[group_of(s)];
    if (QY_UNLIKELY(g->slab != s)) g = other_group(t, s);
    if (QY_UNLIKELY(!set_remote(s, p))) return false;
    if (QY_UNLIKELY(++g->untold == GROUP_MOST)) tell_group(g, false);
    return true;
}

void qy_tiny_free_any(qy_thread_t *t, qy_slab_t *s, void *p) {
    if (t && t->heap == atomic_load_explicit(&s->heap, memory_order_relaxed)) {
        qy_tiny_seen_t in = seen_of(s);
        free_own(t, &in, p);
        return;
    }
    qy_tiny_group_t g;
    open_group(&g, s);
    if (QY_UNLIKELY(!set_remote(s, p))) misfreed(p);
    g.untold = 1;
    tell_group(&g, true);
}
