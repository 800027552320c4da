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

// The word becomes the current one: that of the block at `at`.
QY_INLINE void use_word(qy_thread_t *t, qy_tiny_t *tiny, qy_tiny_word_t *word, char *at) {
    t->tiny_slab = tiny->slab;
    t->cache.tiny_at = at - (uintptr_t)at % QY_TINY_WORD_BYTES;
    t->cache.tiny = word;
    // Before a block of it is given out: who sees all of them freed sees this (qy_tiny_take_in).
    atomic_store_explicit(&t->heap->tiny_at, t->cache.tiny_at, memory_order_relaxed);
}

bool qy_tiny_next_word(qy_thread_t *t, qy_slab_t *s) {
    for (unsigned k = 0; k < 2; k++) {
        uint64_t some = atomic_load_explicit(&s->tiny->some[k], memory_order_relaxed);
        if (!some) continue;
        unsigned w = k * 64 + (unsigned)__builtin_ctzll(some);
        atomic_store_explicit(&s->tiny->some[k], some & (some - 1), memory_order_relaxed);
        use_word(t, s->tiny, &s->tiny->word[w], s->base + w * QY_TINY_WORD_BYTES);
        return true;
    }
    return false;
}

// Is this request one that the sampler wants? As if each block came onto a list now (draw.h).
QY_NOINLINE static void *tiny_drawn(size_t n) {
    qy_thread_t *t = QY_CACHE->thread;
    bool fresh = false;
    return qy_draw_tiny(t, n) ? qy_samples_take(QY_ALIGN_MIN, n, qy_draw_rate(t->drawn), &fresh) : NULL;
}

// The current word has none.
QY_NOINLINE static void *tiny_more(size_t n) {
    qy_thread_t *t = QY_CACHE->thread;
    void *p = NULL;
    size_t moved = 0;
    while (!(p = qy_tiny_pop(&t->cache))) {
        if (t->tiny_slab && qy_tiny_next_word(t, t->tiny_slab)) continue;
        if (!qy_tiny_refill(t)) return qy_aligned_alloc(QY_ALIGN_MIN, n);
        moved += QY_TINY_PAGE;
    }
    if (moved) qy_moved(t, moved);
    return p;
}

void *qy_tiny_malloc(size_t n) {
    uint32_t left = QY_CACHE->tiny_left;
    void *p = NULL;
    if (QY_LIKELY(left)) QY_CACHE->tiny_left = left - 1;
    else p = tiny_drawn(n);
    if (QY_LIKELY(!p)) p = qy_tiny_pop(QY_CACHE);
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

// The word has its first free block, or its last block is free now.
QY_NOINLINE static void word_changed(qy_thread_t *t, qy_tiny_t *tiny, const qy_tiny_word_t *word, uint64_t free) {
    qy_slab_t *s = tiny->slab;
    size_t w = (size_t)(word - tiny->word);
    if (word == t->cache.tiny) return;  // malloc looks at it before all others
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

// The number of a block, counted in blocks from address 0: bits 0 to 5 are its bit in a word, the next 7 the word, the
// rest the frame. An address that is no multiple of 8 is the number of none: its low bits come out at the top.
QY_INLINE uint64_t number_of(const void *p) { return (uint64_t)(uintptr_t)p >> 3 | (uint64_t)(uintptr_t)p << 61; }
QY_INLINE uint64_t frame_of(uint64_t number) { return number / (64 * QY_TINY_WORDS); }
QY_INLINE qy_tiny_word_t *word_of(qy_tiny_word_t *words, uint64_t number) {
    return &words[number / 64 % QY_TINY_WORDS];
}
QY_INLINE qy_tiny_t *of_words(qy_tiny_word_t *words) {
    return (qy_tiny_t *)(void *)((char *)words - offsetof(qy_tiny_t, word));
}

QY_INLINE void free_own(qy_thread_t *t, qy_tiny_word_t *words, void *p) {
    uint64_t number = number_of(p), bit = number % 64;
    qy_tiny_word_t *word = word_of(words, number);
    uint64_t free = atomic_load_explicit(&word->free, memory_order_relaxed),
             remote = atomic_load_explicit(&word->remote, memory_order_relaxed), now = free | UINT64_C(1) << bit;
    if (QY_UNLIKELY((free | remote) >> bit & 1)) {
        qy_tiny_misfreed(p);
        return;
    }
    atomic_store_explicit(&word->free, now, memory_order_relaxed);
    // What was freed last is given out next, where nothing else is left: random frees and mallocs in turns go through
    // no lock, and need no call.
    if (!free && !atomic_load_explicit(&t->cache.tiny->free, memory_order_relaxed))
        use_word(t, of_words(words), word, p);
    else if (QY_UNLIKELY(!free || !~now)) word_changed(t, of_words(words), word, now);
}

QY_INLINE qy_tiny_seen_t *seen_at(const qy_thread_t *t, uint64_t frame) { return &t->tiny_seen[frame % QY_TINY_SEEN]; }

void qy_tiny_forget(qy_thread_t *t) {
    for (unsigned i = 0; i < QY_TINY_SEEN && t->tiny_saw; i++) t->tiny_seen[i].frame = 0;
    t->tiny_saw = false;
}

QY_NOINLINE static void free_elsewhere(qy_thread_t *t, void *p) {
    qy_chunk_t *chunk = qy_map_chunk(p);
    qy_slab_t *s = chunk ? qy_chunk_span(chunk, p) : NULL;
    if (QY_UNLIKELY(!s || s->cls != QY_CLASS_TINY || (uintptr_t)p % QY_TINY)) {
        qy_tiny_misfreed(p);
        return;
    }
    uint64_t frame = frame_of(number_of(p));
    *seen_at(t, frame) = (qy_tiny_seen_t){frame, s->tiny->word};
    t->tiny_saw = true;
    free_own(t, s->tiny->word, p);
}

void qy_tiny_free(qy_cache_t *cache, void *p) {
    qy_thread_t *t = (qy_thread_t *)cache;  // of a thread that has a heap
    uint64_t frame = frame_of(number_of(p));
    const qy_tiny_seen_t *in = seen_at(t, frame);
    if (QY_LIKELY(in->frame == frame)) free_own(t, in->words, p);
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
        free_own(t, s->tiny->word, p);
        return;
    }
    qy_tiny_group_t g;
    open_group(&g, s);
    if (QY_UNLIKELY(!set_remote(s, p))) {
        qy_tiny_misfreed(p);
        return;
    }
    g.untold = 1;
    tell_group(&g, true);
}
