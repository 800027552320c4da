// SPDX-License-Identifier: MIT
// free_slow.c: free of everything that is not a small block of the thread's own heap with room in
// its cache: finds out what the pointer is, exactly, and says so if it is nothing of ours.
#include "heap/alloc.h"
#include "heap/cache.h"
#include "heap/cache_flush.h"
#include "heap/draw.h"
#include "heap/free_fast.h"
#include "heap/guards.h"
#include "heap/heaps.h"
#include "heap/huge.h"
#include "heap/run.h"
#include "heap/link.h"
#include "heap/lists.h"
#include "heap/lookup.h"
#include "heap/remote.h"
#include "heap/samples.h"
#include "heap/sizeclass.h"
#include "heap/slab.h"
#include "heap/moved.h"
#include "heap/tiny.h"
#include "heap/zero.h"
#include "os/os.h"
#include "pages/chunk.h"
#include "pages/map.h"
#include "rt/heuristics.h"

// The free block b, which is on a list, is the last of it from here on. If it was chosen (draw.h), it still is.
QY_NOINLINE static void end_list(qy_block_t *b) {
    qy_assert(b);
    uint64_t excess = qy_link_excess(b, b->link, b->mark);
    qy_link_set(b, NULL);
    b->mark ^= excess;
}

// Cut the list after its first `limit` blocks. False: it has fewer.
static bool cut(qy_block_t *list, unsigned limit, qy_block_t **ret_rest) {
    qy_block_t *last = list;
    for (unsigned n = 1; n < limit; n++)
        if (!(last = qy_link_next(last))) return false;
    *ret_rest = qy_link_next(last);
    end_list(last);
    return true;
}

// There are so many threads that blocks of this class are not cached.
QY_NOINLINE static void give_all_home(qy_thread_t *t, unsigned c) {
    qy_block_t *prev, *head = qy_lists_empty(t, c, &prev);
    qy_cache_flush_list(t, head);
    qy_cache_flush_list(t, prev);
}

// As many blocks were freed as a generation has; p, the last one, is the head of the list. Keep them as the previous
// generation; the heap gets the one before. But only frees are counted: with as many mallocs nothing has gathered. So
// look, and where that was so only after each second generation, then after each fourth.
#define PASSED_MOST 3u
QY_NOINLINE static void pass_generation(qy_thread_t *t, qy_block_t *p, unsigned c, qy_block_t *list) {
    unsigned limit = qy_class_limit[c], began_long = t->merged[c] & QY_BEGAN_LONG,
             generations = (t->merged[c] & ~QY_BEGAN_LONG) + 1u;
    if (qy_budget_is_short()) {
        limit = qy_budget_limit(c);
        qy_draw_set_room(t, c, limit);
        if (!limit) give_all_home(t, c);
        if (!limit) return;
    }
    if (!list) return;  // threads may have ended since the caller asked for the budget
    qy_block_t *rest = NULL, *old = t->prev[c];
    t->busy[c] = true;
    if (generations <= t->balanced[c]) {
        t->merged[c] = (uint8_t)(generations | began_long);
        return;
    }
    t->merged[c] = 0;
    // Of one generation that was pushed on an empty list, or one that was not long, the length is known.
    if ((generations > 1 || began_long) && !cut(list, limit, &rest)) {
        t->balanced[c] = (uint8_t)qy_min(2 * t->balanced[c] + 1, PASSED_MOST);
        return;
    }
    t->balanced[c] = 0;
    end_list(p);
    t->prev[c] = list;
    qy_cache_flush_list(t, rest);
    qy_cache_give_up(t, c, old);
}

// There is no room because the sampler wants to see this block, or the generation is full, or both.
QY_NOINLINE static void push_drawn(qy_thread_t *t, qy_block_t *b, unsigned c) {
    bool full, chosen = qy_draw_push(t, c, &full);
    qy_block_t *list = qy_cache_list(&t->cache, c);
    qy_link_set(b, list);
    if (chosen) qy_draw_choose(t, b);
    atomic_signal_fence(memory_order_release);  // as in qy_free_push
    t->cache.head[c] = b;
    if (full && (list || qy_budget_is_short())) pass_generation(t, b, c, list);
}

QY_INLINE void push_full(void *p, size_t c, qy_cache_t *cache) {
    qy_block_t *b = p, *head = cache->head[c];
    cache->room[c] = (uint8_t)(qy_class_limit[c] + 1);
    qy_link_put(b, head);
    atomic_signal_fence(memory_order_release);  // as in qy_free_push
    cache->head[c] = b;
    if (head != &qy_link_end) pass_generation(cache->thread, b, (unsigned)c, head);
    else if (qy_budget_is_short()) pass_generation(cache->thread, b, (unsigned)c, NULL);
}

QY_NOINLINE static void full_drawn(void *p, size_t c, qy_cache_t *cache) {
    if (qy_draw_passes_generation(cache->thread, (unsigned)c)) push_full(p, c, cache);
    else push_drawn(cache->thread, p, (unsigned)c);
}

void qy_free_full(void *p, size_t c, qy_cache_t *cache) {
    if (qy_draw_is_wanted()) full_drawn(p, c, cache);
    else push_full(p, c, cache);
}

// It may be that nothing is wrong: the generation is full.
void qy_free_rare(void *p, size_t c, qy_cache_t *t) {
    if (QY_LIKELY(!t->room[c] && qy_is_start(t, p, c) && !qy_link_may_be(p))) {
        qy_free_full(p, c, t);
        return;
    }
    t->room[c]++;
    qy_free_slow(p);
}

static void free_block(qy_slab_t *s, qy_block_t *b) {
    qy_thread_t *t = qy_thread_get();
    qy_heap_t *h = atomic_load_explicit(&s->heap, memory_order_relaxed);
    if (s->cls == QY_CLASS_TINY) {
        qy_tiny_free_any(t, s, b);
        return;
    }
    if (QY_UNLIKELY(!t || !qy_cache_is_on(&t->cache) || h->kind == QY_HEAP_FIRST_CLASS)) {
        if (qy_samples_are_in(h)) qy_samples_end(b);
        qy_remote_free_locked(s, b);
        return;
    }
    if (h != t->heap) {
        qy_remote_free(t, s, b, s->cls);
        return;
    }
    qy_free_push(&t->cache, s->cls, b);
}

// A block of another thread's heap, by the same tests as one of our own. Reads what freers and owners only read: the
// tag, the map, the units' slabs; and the block, which is ours. False: what p is must be found out exactly.
QY_INLINE bool free_remote(qy_cache_t *t, qy_block_t *b) {
    qy_tag_t tag = qy_map_tag(b);
    if ((tag & QY_TAG_FIRST_CLASS) || !qy_cache_is_on(t)) return false;
    unsigned c = qy_block_class(b, tag);
    if (!c) return (tag & QY_TAG_CLASS) == QY_CLASS_TINY && qy_tiny_free_remote(t->thread, b);
    qy_chunk_t *chunk = qy_map_chunk(b);
    qy_slab_t *s = chunk ? qy_chunk_span(chunk, b) : NULL;
    if (!s || s == &qy_span_freed) return false;
    qy_remote_free(t->thread, s, b, c);
    return true;
}

QY_NOINLINE static void free_of_another(void *p) {
    if (!free_remote(QY_CACHE, p)) qy_free_slow(p);
}

// Blocks of more than 8 KiB take the same steps as smaller ones; they lie in frames of 256 KiB (sizeclass.h), so the
// block-start test needs no descriptor either.
void qy_free_other(void *p, size_t c, qy_cache_t *t) {
    qy_block_t *b = p;
    if (QY_LIKELY(c - QY_CLASS_SLAB_64K - 1 < QY_CLASS_COUNT - QY_CLASS_SLAB_64K - 1)) {
        size_t offset = qy_class_offset((unsigned)c, p);
        if (QY_LIKELY(qy_class_is_start(c, offset) && !qy_link_may_be(b))) {
            qy_free_push(t, c, b);
            return;
        }
        qy_free_slow(p);
        return;
    }
    if (c == QY_CLASS_TINY) qy_tiny_free(t, p);
    else free_of_another(p);
}

QY_NOINLINE static void free_exactly(void *p) {
    if (qy_lookup_is_guarded(p)) {
        if (qy_samples_any()) qy_samples_end(p);
        qy_guards_free(p);
        return;
    }
    qy_object_t o = qy_lookup_must(p);
    if (o.kind != QY_OBJECT_BLOCK && qy_samples_any()) qy_samples_end(p);
    switch (o.kind) {
    case QY_OBJECT_BLOCK: free_block(o.slab, p); break;
    case QY_OBJECT_RUN: qy_run_free(o.chunk, o.slab); break;
    case QY_OBJECT_HUGE: qy_huge_free(o.huge); break;
    case QY_OBJECT_ZERO:
        if (QY_UNLIKELY(!qy_zero_free(p))) qy_fatal(QY_FAULT_DOUBLE_FREE, p, "block of %z byte%S", (size_t)0);
        break;
    default: break;
    }
    qy_moved_here(o.usable);
}

void qy_free_slow(void *p) {
    qy_cache_t *t = QY_CACHE;
    if ((qy_map_look(p) ^ t->key) == QY_CLASS_TINY) qy_tiny_free(t, p);
    else if (p) free_exactly(p);
}
