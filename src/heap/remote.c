// SPDX-License-Identifier: MIT
// remote.c: see remote.h.
#include "heap/remote.h"

#include "heap/cache.h"
#include "heap/heaps.h"
#include "heap/link.h"
#include "heap/waste.h"
#include "heap/sizeclass.h"
#include "heap/slab.h"
#include "heap/tiny.h"
#include "rt/heuristics.h"

// ---- the remote word ------------------------------------------------------------------------------

static qy_block_t *block_at(const qy_slab_t *s, uint64_t field) {
    uint64_t at = field & QY_REMOTE_MASK;
    return at ? (qy_block_t *)(s->base + (at - 1) * QY_ALIGN_MIN) : NULL;
}
static uint64_t field_of(const qy_slab_t *s, const qy_block_t *b) {
    return (uint64_t)((const char *)b - s->base) / QY_ALIGN_MIN + 1;
}

static qy_block_t *word_first(const qy_slab_t *s, uint64_t word) { return block_at(s, word); }
static qy_block_t *word_last(const qy_slab_t *s, uint64_t word) { return block_at(s, word >> QY_REMOTE_LAST_SHIFT); }
static uint32_t word_count(uint64_t word) { return (uint32_t)(word >> QY_REMOTE_COUNT_SHIFT & QY_REMOTE_MASK); }

// The word after a group was put before what is in it.
static uint64_t word_with(const qy_slab_t *s, const qy_pend_t *e, uint64_t word) {
    uint64_t last = word_count(word) ? word >> QY_REMOTE_LAST_SHIFT & QY_REMOTE_MASK : field_of(s, e->last);
    return field_of(s, e->first) | (uint64_t)(word_count(word) + e->count) << QY_REMOTE_COUNT_SHIFT | QY_REMOTE_QUEUED |
           last << QY_REMOTE_LAST_SHIFT;
}

// ---- handing over -----------------------------------------------------------------------------------

// What goes to one heap: slabs, linked like its mailbox, so that all go in with one operation on a line that its owner
// reads.
typedef struct post {
    qy_heap_t *heap;  // NULL: nothing
    qy_slab_t *first, *last;
    size_t slabs, bytes;
} post_t;

#define POSTS 8u

static void mail(qy_heap_t *h, qy_slab_t *first, qy_slab_t *last) {
    qy_slab_t *head = atomic_load_explicit(&h->mailbox, memory_order_relaxed);
    do last->mail_next = head;
    while (
        !atomic_compare_exchange_weak_explicit(&h->mailbox, &head, first, memory_order_release, memory_order_relaxed));
}

QY_NOINLINE static void deliver(post_t *post) {
    qy_heap_t *h = post->heap;
    if (!h) return;
    qy_waste_in_mail(h, post->bytes);
    if (post->first) {
        mail(h, post->first, post->last);
        atomic_fetch_add_explicit(&h->publishes, post->slabs, memory_order_relaxed);
        QY_FENCE_AFTER_RMW();
        // Nobody attached means nobody will look: do it for them, if it costs no waiting. (Who leaves looks after it
        // was seen to be idle.)
        if (atomic_load_explicit(&h->idle, memory_order_relaxed) && qy_heap_trylock(h)) {
            qy_remote_drain(h);
            qy_lock_drop(&h->lock);
        }
    }
    *post = (post_t){.heap = NULL};
}

// A group's blocks into its slab's word; the slab, unless somebody else mails it, into one of the n posts. These must
// be delivered: until then nobody brings home what comes into this word.
QY_INLINE void publish(qy_pend_t *e, post_t *posts, unsigned n) {
    qy_slab_t *s = e->slab;
    e->slab = NULL;  // first, so that a signal's handler that ends the process does not hand it over twice
    atomic_signal_fence(memory_order_release);
    // Read before the blocks are handed over: after that, unless we queue it, the slab may vanish.
    qy_heap_t *h = atomic_load_explicit(&s->heap, memory_order_relaxed);
    uint64_t word = atomic_load_explicit(&s->remote, memory_order_relaxed), next;
    do {
        qy_link_set(e->last, word_first(s, word));
        next = word_with(s, e, word);
    } while (
        !atomic_compare_exchange_weak_explicit(&s->remote, &word, next, memory_order_acq_rel, memory_order_relaxed));
    bool queue = !(word & QY_REMOTE_QUEUED);
    if (queue) h = atomic_load_explicit(&s->heap, memory_order_acquire);
    post_t *post = &posts[(uintptr_t)h / QY_CACHE_LINE % n];
    if (post->heap != h) deliver(post);
    post->heap = h;
    post->bytes += (size_t)e->count * e->size;
    if (!queue) return;
    if (!post->first) post->last = s;
    s->mail_next = post->first;
    post->first = s;
    post->slabs++;
}

void qy_remote_mail(qy_heap_t *h, qy_slab_t *s, size_t bytes) {
    if (bytes) deliver(&(post_t){.heap = h, .first = s, .last = s, .slabs = 1, .bytes = bytes});
}

QY_NOINLINE void qy_remote_flush(qy_thread_t *t) {
    if (t->tiny_open) qy_tiny_tell(t);
    if (!t->pend_bytes) return;
    post_t posts[POSTS] = {{.heap = NULL}};
    for (unsigned i = 0; i < QY_PEND_COUNT; i++)
        if (t->pend[i].slab) publish(&t->pend[i], posts, POSTS);
    for (unsigned i = 0; i < POSTS; i++) deliver(&posts[i]);
    t->pend_bytes = 0;
}

static void publish_one(qy_thread_t *t, qy_pend_t *e) {
    post_t post = {.heap = NULL};
    t->pend_bytes -= (size_t)e->count * e->size;
    publish(e, &post, 1);
    deliver(&post);
}

// ---- gathering --------------------------------------------------------------------------------------

// A quarter of the slab: the owner sees its blocks before it needs another slab. Of a slab with few blocks, eight: more
// than it has, where it is one of the first of large blocks; those leave when others need the places, or by their
// bytes.
static uint16_t group_most(const qy_slab_t *s) { return (uint16_t)qy_min(qy_max(s->nblocks / 4, 8), 256); }

// A slab's group is in one of four places, whose first one is this. (Descriptors of slabs that were made one after the
// other are neighbours: these share no place.)
static qy_pend_t *places_of(qy_thread_t *t, const qy_slab_t *s) {
    return &t->pend[(uintptr_t)s / QY_CACHE_LINE % (QY_PEND_COUNT / QY_PEND_WAYS) * QY_PEND_WAYS];
}

QY_NOINLINE static void begin_group(qy_thread_t *t, qy_slab_t *s, qy_block_t *b, unsigned c) {
    qy_pend_t *e = places_of(t, s), *end = e + QY_PEND_WAYS;
    while (e < end && e->slab) e++;
    // No place: many slabs, so that groups stay small. Together they take one operation on a heap's mailbox.
    if (e == end) {
        qy_remote_flush(t);
        e = places_of(t, s);
    }
    *e = (qy_pend_t){.slab = s, .first = b, .last = b, .count = 1, .most = group_most(s), .size = qy_class_size[c]};
    qy_link_set(b, NULL);
    t->pend_bytes += e->size;
    if (t->pend_bytes > qy_budget_pend() || !QY_WITH(pending)) qy_remote_flush(t);
}

void qy_remote_free(qy_thread_t *t, qy_slab_t *s, qy_block_t *b, unsigned c) {
    qy_pend_t *e = places_of(t, s), *end = e + QY_PEND_WAYS;
    while (e->slab != s)
        if (QY_UNLIKELY(++e == end)) {
            begin_group(t, s, b, c);
            return;
        }
    qy_link_set(b, e->first);
    e->first = b;
    t->pend_bytes += e->size;
    if (QY_UNLIKELY(++e->count >= e->most)) {
        publish_one(t, e);
    } else if (QY_UNLIKELY(t->pend_bytes > qy_budget_pend())) {
        qy_remote_flush(t);
    }
}

// ---- taking in --------------------------------------------------------------------------------------

bool qy_remote_drain(qy_heap_t *h) {
    QY_NEEDS(&h->lock);
    if (h->tiny_mail) qy_tiny_take_mail(h);
    if (!atomic_load_explicit(&h->mailbox, memory_order_relaxed)) return false;
    qy_slab_t *s = atomic_exchange_explicit(&h->mailbox, NULL, memory_order_acquire), *next;
    if (!s) return false;
    atomic_store_explicit(&h->mailed, 0, memory_order_relaxed);
    for (; s; s = next) {
        next = s->mail_next;
        // Other processors wrote to it: it takes its time to come.
        if (next) __builtin_prefetch(next, 1);
        qy_heap_t *owner = atomic_load_explicit(&s->heap, memory_order_acquire);
        if (owner != h) {
            mail(owner, s, s);
            continue;
        }
        if (s->cls == QY_CLASS_TINY) {
            qy_tiny_take_in(h, s);
            continue;
        }
        uint64_t word = atomic_exchange_explicit(&s->remote, 0, memory_order_acq_rel);
        qy_slab_put_chain(h, s, word_first(s, word), word_last(s, word), word_count(word));
        h->adoptions++;
        qy_slab_settle(h, s);
    }
    qy_waste_in_slabs(h);
    return true;
}

void qy_remote_free_locked(qy_slab_t *s, qy_block_t *b) {
    qy_heap_t *h = qy_heap_lock_of(s);
    qy_remote_drain(h);
    qy_slab_put(h, s, b);
    qy_slab_settle(h, s);
    qy_waste_in_slabs(h);
    qy_heap_unlock(h);
}
