// SPDX-License-Identifier: MIT
// remote.c: see remote.h.
#include "heap/remote.h"

#include "heap/heap.h"
#include "heap/link.h"
#include "heap/purge.h"
#include "heap/sizeclass.h"
#include "heap/slab.h"

static qy_block_t *word_first(const qy_slab_t *s, uint64_t word) {
    uint64_t at = word & QY_REMOTE_OFFSET_MASK;
    return at ? (qy_block_t *)(s->base + (at - 1) * QY_ALIGN_MIN) : NULL;
}
static uint64_t word_of(const qy_slab_t *s, const qy_block_t *first, uint64_t count) {
    return ((uint64_t)((const char *)first - s->base) / QY_ALIGN_MIN + 1) | count << QY_REMOTE_COUNT_SHIFT | QY_REMOTE_QUEUED;
}
static uint32_t word_count(uint64_t word) { return (uint32_t)(word >> QY_REMOTE_COUNT_SHIFT & QY_REMOTE_OFFSET_MASK); }

static void mail(qy_heap_t *h, qy_slab_t *s) {
    qy_slab_t *head = atomic_load_explicit(&h->mailbox, memory_order_relaxed);
    do s->mail_next = head;
    while (!atomic_compare_exchange_weak_explicit(&h->mailbox, &head, s, memory_order_release, memory_order_relaxed));
}

static void publish(qy_pend_t *e) {
    qy_slab_t *s = e->slab;
    // Read before the blocks are handed over: after that, unless we queue it, the slab may vanish.
    qy_heap_t *owner = atomic_load_explicit(&s->heap, memory_order_relaxed);
    uint64_t word = atomic_load_explicit(&s->remote, memory_order_relaxed), next;
    do {
        qy_link_set(e->last, word_first(s, word), qy_link_secret);
        next = word_of(s, e->first, word_count(word) + e->count);
    } while (!atomic_compare_exchange_weak_explicit(&s->remote, &word, next, memory_order_acq_rel, memory_order_relaxed));
    e->slab = NULL;
    size_t bytes = (size_t)e->count * e->size;
    if (word & QY_REMOTE_QUEUED) {
        qy_purge_mailed(owner, bytes);
        return;
    }
    qy_heap_t *h = atomic_load_explicit(&s->heap, memory_order_acquire);
    qy_purge_mailed(h, bytes);
    mail(h, s);
    atomic_fetch_add_explicit(&h->publishes, 1, memory_order_relaxed);
    // Nobody attached means nobody will look: do it for them, if it costs no waiting.
    if (atomic_load_explicit(&h->idle, memory_order_relaxed) && qy_heap_trylock(h)) {
        qy_remote_drain(h);
        qy_lock_drop(&h->lock);
    }
}

// A quarter of the slab: the owner sees its blocks before it needs another slab.
static uint32_t group_most(const qy_slab_t *s) { return (uint32_t)qy_min(qy_max(s->nblocks / 4, 8), 256); }

void qy_remote_flush(qy_thread_t *t) {
    for (unsigned i = 0; i < QY_PEND_COUNT; i++)
        if (t->pend[i].slab) publish(&t->pend[i]);
    t->pend_bytes = 0;
}

QY_NOINLINE static void begin_group(qy_thread_t *t, qy_pend_t *e, qy_slab_t *s, qy_block_t *b, unsigned c) {
    if (e->slab) {
        t->pend_bytes -= (size_t)e->count * e->size;
        publish(e);
    }
    *e = (qy_pend_t){.slab = s, .first = b, .last = b, .count = 1, .most = group_most(s), .size = qy_class_size[c]};
    qy_link_set(b, NULL, qy_link_secret);
    t->pend_bytes += e->size;
    if (t->pend_bytes > QY_PEND_BYTES) qy_remote_flush(t);
}

void qy_remote_free(qy_thread_t *t, qy_slab_t *s, qy_block_t *b, unsigned c) {
    qy_pend_t *e = &t->pend[((uintptr_t)s >> 7) % QY_PEND_COUNT];
    if (QY_UNLIKELY(e->slab != s)) {
        begin_group(t, e, s, b, c);
        return;
    }
    qy_link_set(b, e->first, qy_link_secret);
    e->first = b;
    t->pend_bytes += e->size;
    if (QY_UNLIKELY(++e->count >= e->most)) {
        t->pend_bytes -= (size_t)e->count * e->size;
        publish(e);
    } else if (QY_UNLIKELY(t->pend_bytes > QY_PEND_BYTES)) {
        qy_remote_flush(t);
    }
}

bool qy_remote_drain(qy_heap_t *h) {
    if (!atomic_load_explicit(&h->mailbox, memory_order_relaxed)) return false;
    qy_slab_t *s = atomic_exchange_explicit(&h->mailbox, NULL, memory_order_acquire), *next;
    if (!s) return false;
    atomic_store_explicit(&h->mailed, 0, memory_order_relaxed);
    for (; s; s = next) {
        next = s->mail_next;
        qy_heap_t *owner = atomic_load_explicit(&s->heap, memory_order_acquire);
        if (owner != h) {
            mail(owner, s);
            continue;
        }
        uint64_t word = atomic_exchange_explicit(&s->remote, 0, memory_order_acq_rel);
        qy_slab_put_chain(h, s, word_first(s, word), word_count(word));
        h->adoptions++;
        qy_slab_settle(h, s);
    }
    qy_purge_consider(h);
    return true;
}

void qy_remote_free_locked(qy_slab_t *s, qy_block_t *b) {
    for (;;) {
        qy_heap_t *h = atomic_load_explicit(&s->heap, memory_order_acquire);
        qy_heap_lock(h);
        if (QY_LIKELY(atomic_load_explicit(&s->heap, memory_order_relaxed) == h)) {
            qy_remote_drain(h);
            qy_slab_put(h, s, b);
            qy_slab_settle(h, s);
            qy_purge_consider(h);
            qy_heap_unlock(h);
            return;
        }
        qy_heap_unlock(h);  // it moved to another heap meanwhile
    }
}
