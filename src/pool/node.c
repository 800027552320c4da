// SPDX-License-Identifier: MIT
// node.c: see node.h. A hash table by address, and two lists by age.
#include "pool/node.h"

#include "pool/origin.h"

#define FIRST_BUCKETS ((size_t)512)
#define SLAB_NODES 128u

typedef struct qy_node_slab {
    struct qy_node_slab *next;
    qy_block_node_t node[SLAB_NODES];
} qy_node_slab_t;

void qy_node_print_traces(const qy_block_node_t *node) {
    qy_origin_print("allocated", node->born);
    qy_origin_print("freed", node->died);
}

// ---- nodes ----------------------------------------------------------------------------------------------

static bool more_nodes(struct qy_observer *o) {
    QY_NEEDS(&o->lock);
    qy_node_slab_t *slab = qy_pool_meta_alloc(sizeof *slab);
    if (!slab) return false;
    slab->next = o->slabs;
    o->slabs = slab;
    for (unsigned i = SLAB_NODES; i-- > 0;) {
        slab->node[i].older = o->spares;
        o->spares = &slab->node[i];
    }
    return true;
}

// ---- the observer -----------------------------------------------------------------------------------------

struct qy_observer *qy_observer_new(void) {
    struct qy_observer *o = qy_pool_meta_alloc(sizeof *o);
    if (!o) return NULL;
    o->buckets = FIRST_BUCKETS;
    o->table = qy_pool_meta_alloc(o->buckets * sizeof *o->table);
    if (o->table) return o;
    qy_pool_meta_free(o, sizeof *o);
    return NULL;
}

void qy_observer_delete(struct qy_observer *o) {
    qy_assert(!o->live.newest && !o->quarantine.newest);
    for (qy_node_slab_t *slab = o->slabs, *next; slab; slab = next) {
        next = slab->next;
        qy_pool_meta_free(slab, sizeof *slab);
    }
    qy_pool_meta_free(o->table, o->buckets * sizeof *o->table);
    qy_pool_meta_free(o, sizeof *o);
}

void qy_observer_fork(struct qy_observer *o, int phase) { qy_lock_fork(&o->lock, phase); }

static bool table_grow(struct qy_observer *o) {
    QY_NEEDS(&o->lock);
    size_t old = o->buckets;
    qy_block_node_t **table = o->table, **bigger = qy_pool_meta_alloc(old * 2 * sizeof *bigger);
    if (!bigger) return false;
    o->table = bigger;
    o->buckets = old * 2;
    for (size_t i = 0; i < old; i++) {
        for (qy_block_node_t *n = table[i], *next; n; n = next) {
            next = n->same_bucket;
            qy_block_node_t **b = qy_node_bucket(o, n->ptr);
            n->same_bucket = *b;
            *b = n;
        }
    }
    qy_pool_meta_free(table, old * sizeof *table);
    return true;
}

// ---- blocks -----------------------------------------------------------------------------------------------

qy_block_node_t *qy_node_make(struct qy_observer *o) {
    // A full table still works; only one that cannot grow to half the need is given up.
    bool room = qy_node_known(o) < o->buckets || table_grow(o) || o->begun - o->ended < o->buckets * 16;
    if (!room || (!o->spares && !more_nodes(o))) return NULL;
    qy_block_node_t *n = o->spares;
    o->spares = n->older;
    return n;
}

bool qy_observer_add(struct qy_observer *o, const qy_block_node_t *node) {
    qy_lock_take(&o->lock);
    qy_block_node_t *n = qy_node_take(o);
    if (n) {
        *n = *node;
        qy_assert(!o->live.newest || o->live.newest->group <= n->group);
        qy_node_enter(o, n);
        qy_live_push(o, n, n->size);
    }
    qy_lock_drop(&o->lock);
    return n != NULL;
}

static void node_ends(struct qy_observer *o, qy_block_node_t *n) {
    qy_live_remove(o, n);
    n->freed = true;
    n->older = NULL;
}

qy_block_node_t *qy_observer_take(struct qy_observer *o, const void *ptr, bool replaced) {
    qy_lock_take(&o->lock);
    qy_block_node_t *n = qy_node_find(o, ptr, false);
    if (n) {
        node_ends(o, n);
        o->resized += replaced;
    }
    qy_lock_drop(&o->lock);
    return n;
}

qy_block_node_t *qy_node_search(struct qy_observer *o, uint64_t first, uint64_t last) {
    QY_NEEDS(&o->lock);
    qy_block_node_t *n = o->live.newest, *old = o->live.oldest;
    if (n->group - last <= first - qy_min(first, old->group)) {
        while (n && n->group > last) n = n->older;
        return n;
    }
    while (old->newer && old->newer->group <= last) old = old->newer;
    return old;
}

qy_block_node_t *qy_observer_take_groups(struct qy_observer *o, uint64_t first, uint64_t last) {
    qy_block_node_t *taken = NULL, **end = &taken;
    qy_lock_take(&o->lock);
    for (qy_block_node_t *n = qy_node_newest_of(o, first, last), *next; n && n->group >= first; n = next) {
        next = n->older;
        if (n->group > last) break;
        node_ends(o, n);
        *end = n;
        end = &n->older;
    }
    qy_lock_drop(&o->lock);
    return taken;
}

// ---- quarantine -------------------------------------------------------------------------------------------

qy_block_node_t *qy_node_evict(struct qy_observer *o, size_t bytes) {
    QY_NEEDS(&o->lock);
    qy_block_node_t *out = NULL;
    while (o->waiting > bytes) out = qy_node_leaves(o, o->quarantine.oldest, out);
    return out;
}

qy_block_node_t *qy_observer_quarantine(struct qy_observer *o, qy_block_node_t *chain) {
    qy_lock_take(&o->lock);
    for (qy_block_node_t *next; chain; chain = next) {
        next = chain->older;
        qy_assert(chain->freed);
        qy_quarantine_push(o, chain, qy_node_ended_bytes(chain));
    }
    qy_block_node_t *out = qy_node_too_many(o);
    qy_lock_drop(&o->lock);
    return out;
}

qy_block_node_t *qy_observer_release_quarantine(struct qy_observer *o) {
    qy_lock_take(&o->lock);
    qy_block_node_t *out = qy_node_evict(o, 0);
    qy_lock_drop(&o->lock);
    return out;
}

qy_block_node_t *qy_observer_within(struct qy_observer *o, uintptr_t from, uintptr_t to) {
    qy_block_node_t *out = NULL;
    qy_lock_take(&o->lock);
    for (qy_block_node_t *n = o->quarantine.newest, *next; n; n = next) {
        next = n->older;
        if (~n->raw < to && ~n->raw + n->raw_bytes > from) out = qy_node_leaves(o, n, out);
    }
    qy_lock_drop(&o->lock);
    return out;
}

void qy_observer_forget(struct qy_observer *o, qy_block_node_t *chain) {
    qy_lock_take(&o->lock);
    for (qy_block_node_t *next; chain; chain = next) {
        next = chain->older;
        qy_assert(chain->freed);
        qy_node_leave(o, chain);
        qy_node_spare(o, chain);
    }
    qy_lock_drop(&o->lock);
}

void qy_observer_spare(struct qy_observer *o, qy_block_node_t *chain) {
    if (!chain) return;
    qy_lock_take(&o->lock);
    for (qy_block_node_t *next; chain; chain = next) {
        next = chain->older;
        qy_node_spare(o, chain);
    }
    qy_lock_drop(&o->lock);
}

// ---- what may be asked --------------------------------------------------------------------------------------

qy_what_t qy_observer_explain(struct qy_observer *o, const void *ptr, qy_block_node_t *ret_copy) {
    qy_what_t what = QY_IS_NOTHING;
    qy_lock_take(&o->lock);
    const qy_block_node_t *n = qy_node_find(o, ptr, false);
    if (n) what = QY_IS_BLOCK;
    else if ((n = qy_node_find(o, ptr, true))) what = QY_WAS_FREED;
    else {
        for (n = o->live.newest; n; n = n->older) {
            uintptr_t start = (uintptr_t)qy_shown_pointer(n->ptr);
            if ((uintptr_t)ptr - start < n->size) break;
        }
        if (n) what = QY_IS_INSIDE;
    }
    if (n) *ret_copy = *n;
    qy_lock_drop(&o->lock);
    return what;
}

uint64_t qy_observer_live(struct qy_observer *o) {
    qy_lock_take(&o->lock);
    uint64_t blocks = o->begun - o->ended;
    qy_lock_drop(&o->lock);
    return blocks;
}

void qy_observer_stats(struct qy_observer *o, quarry_pool_stats_t *stats) {
    qy_lock_take(&o->lock);
    stats->used_bytes = o->requested - o->ended_bytes;
    stats->requested_bytes = o->requested;
    stats->allocs = o->begun - o->resized;
    stats->frees = o->ended - o->resized;
    stats->resizes = o->resized;
    qy_lock_drop(&o->lock);
}

bool qy_observer_all(struct qy_observer *o, bool (*holds)(const qy_block_node_t *node, void *arg), void *arg) {
    bool all = true;
    qy_lock_take(&o->lock);
    for (const qy_block_node_t *n = o->live.newest; n && all; n = n->older) all = holds(n, arg);
    qy_lock_drop(&o->lock);
    return all;
}
