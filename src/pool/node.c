// SPDX-License-Identifier: MIT
// node.c: see node.h. A hash table by address, and two lists by age.
#include "pool/node.h"

#include "base/num.h"
#include "pool/origin.h"
#include "pool/pool.h"

#define FIRST_BUCKETS ((size_t)512)
#define SLAB_NODES 128u

typedef struct age {
    qy_block_node_t *newest, *oldest;
    size_t blocks, bytes;
} age_t;

typedef struct node_slab {
    struct node_slab *next;
    qy_block_node_t node[SLAB_NODES];
} node_slab_t;

struct qy_observer {
    qy_lock_t lock;  // of everything here
    qy_block_node_t **table;
    size_t buckets;  // a power of two
    age_t live, quarantine;
    qy_block_node_t *spares;  // chained by `older`
    node_slab_t *slabs;
};

void qy_node_print_traces(const qy_block_node_t *node) {
    qy_origin_print("allocated", node->born);
    qy_origin_print("freed", node->died);
}

// ---- nodes ----------------------------------------------------------------------------------------------

static bool more_nodes(struct qy_observer *o) {
    QY_NEEDS(&o->lock);
    node_slab_t *slab = qy_pool_meta_alloc(sizeof *slab);
    if (!slab) return false;
    slab->next = o->slabs;
    o->slabs = slab;
    for (unsigned i = SLAB_NODES; i-- > 0;) {
        slab->node[i].older = o->spares;
        o->spares = &slab->node[i];
    }
    return true;
}

static void node_spare(struct qy_observer *o, qy_block_node_t *n) {
    QY_NEEDS(&o->lock);
    n->older = o->spares;
    o->spares = n;
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
    qy_assert(!o->live.blocks && !o->quarantine.blocks);
    for (node_slab_t *slab = o->slabs, *next; slab; slab = next) {
        next = slab->next;
        qy_pool_meta_free(slab, sizeof *slab);
    }
    qy_pool_meta_free(o->table, o->buckets * sizeof *o->table);
    qy_pool_meta_free(o, sizeof *o);
}

void qy_observer_fork(struct qy_observer *o, int phase) { qy_lock_fork(&o->lock, phase); }

static qy_block_node_t **bucket_of(struct qy_observer *o, uintptr_t hidden) {
    return &o->table[(hidden * 0x9E3779B97F4A7C15u) >> 32 & (o->buckets - 1)];
}

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
            qy_block_node_t **b = bucket_of(o, n->ptr);
            n->same_bucket = *b;
            *b = n;
        }
    }
    qy_pool_meta_free(table, old * sizeof *table);
    return true;
}

// What it counts as.
static size_t live_bytes(const qy_block_node_t *n) { return n->size; }
static size_t quarantine_bytes(const qy_block_node_t *n) {
    return n->fenced ? qy_max(n->size, QY_QUARANTINE_FENCED) : n->raw_bytes + sizeof *n;
}

QY_INLINE void age_add(age_t *a, qy_block_node_t *n, size_t bytes) {
    n->newer = NULL;
    n->older = a->newest;
    *(n->older ? &n->older->newer : &a->oldest) = n;
    a->newest = n;
    a->blocks++;
    a->bytes += bytes;
}

QY_INLINE void age_remove(age_t *a, qy_block_node_t *n, size_t bytes) {
    qy_assert(a->blocks && a->bytes >= bytes);
    *(n->newer ? &n->newer->older : &a->newest) = n->older;
    *(n->older ? &n->older->newer : &a->oldest) = n->newer;
    a->blocks--;
    a->bytes -= bytes;
}

QY_INLINE void table_add(struct qy_observer *o, qy_block_node_t *n) {
    QY_NEEDS(&o->lock);
    qy_block_node_t **b = bucket_of(o, n->ptr);
    n->same_bucket = *b;
    *b = n;
}

QY_INLINE void table_remove(struct qy_observer *o, qy_block_node_t *n) {
    QY_NEEDS(&o->lock);
    qy_block_node_t **b = bucket_of(o, n->ptr);
    while (*b != n) b = &(*b)->same_bucket;
    *b = n->same_bucket;
}

static qy_block_node_t *node_find(struct qy_observer *o, const void *ptr, bool freed) {
    QY_NEEDS(&o->lock);
    qy_block_node_t *n = *bucket_of(o, qy_hide_pointer(ptr));
    while (n && !(n->ptr == qy_hide_pointer(ptr) && n->freed == freed)) n = n->same_bucket;
    return n;
}

// ---- blocks -----------------------------------------------------------------------------------------------

bool qy_observer_add(struct qy_observer *o, const qy_block_node_t *node) {
    qy_lock_take(&o->lock);
    // A full table still works; only one that cannot grow to half the need is given up.
    bool room = o->live.blocks + o->quarantine.blocks < o->buckets || table_grow(o) || o->live.blocks < o->buckets * 16;
    if (room && (o->spares || more_nodes(o))) {
        qy_block_node_t *n = o->spares;
        o->spares = n->older;
        *n = *node;
        qy_assert(!o->live.newest || o->live.newest->group <= n->group);
        table_add(o, n);
        age_add(&o->live, n, live_bytes(n));
    } else {
        room = false;
    }
    qy_lock_drop(&o->lock);
    return room;
}

static void node_ends(struct qy_observer *o, qy_block_node_t *n) {
    age_remove(&o->live, n, live_bytes(n));
    n->freed = true;
    n->older = NULL;
}

qy_block_node_t *qy_observer_take(struct qy_observer *o, const void *ptr) {
    qy_lock_take(&o->lock);
    qy_block_node_t *n = node_find(o, ptr, false);
    if (n) node_ends(o, n);
    qy_lock_drop(&o->lock);
    return n;
}

// Blocks of a group lie side by side in the list. It is searched from the end that is nearer: frames of a stack end at
// the newest, those of a ring mostly at the oldest.
static qy_block_node_t *newest_of(struct qy_observer *o, uint64_t first, uint64_t last) {
    QY_NEEDS(&o->lock);
    qy_block_node_t *n = o->live.newest, *old = o->live.oldest;
    if (!n || n->group <= last) return n;
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
    for (qy_block_node_t *n = newest_of(o, first, last), *next; n && n->group >= first; n = next) {
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

// Out of quarantine and table, in front of the chain `out`.
QY_INLINE qy_block_node_t *leaves(struct qy_observer *o, qy_block_node_t *n, qy_block_node_t *out) {
    table_remove(o, n);
    age_remove(&o->quarantine, n, quarantine_bytes(n));
    n->older = out;
    return n;
}

static qy_block_node_t *evict(struct qy_observer *o, size_t bytes) {
    QY_NEEDS(&o->lock);
    qy_block_node_t *out = NULL;
    while (o->quarantine.bytes > bytes) out = leaves(o, o->quarantine.oldest, out);
    return out;
}

qy_block_node_t *qy_observer_quarantine(struct qy_observer *o, qy_block_node_t *chain) {
    qy_lock_take(&o->lock);
    for (qy_block_node_t *next; chain; chain = next) {
        next = chain->older;
        qy_assert(chain->freed);
        age_add(&o->quarantine, chain, quarantine_bytes(chain));
    }
    bool full = QY_UNLIKELY(o->quarantine.bytes > QY_QUARANTINE_BYTES);
    qy_block_node_t *out = full ? evict(o, QY_QUARANTINE_BYTES - QY_QUARANTINE_LEAVES) : NULL;
    qy_lock_drop(&o->lock);
    return out;
}

qy_block_node_t *qy_observer_release_quarantine(struct qy_observer *o) {
    qy_lock_take(&o->lock);
    qy_block_node_t *out = evict(o, 0);
    qy_lock_drop(&o->lock);
    return out;
}

void qy_observer_newest(struct qy_observer *o, qy_node_goes_t *goes, void *arg) {
    qy_lock_take(&o->lock);
    for (qy_block_node_t *n; (n = o->quarantine.newest) && goes(n, arg);) o->spares = leaves(o, n, o->spares);
    qy_lock_drop(&o->lock);
}

qy_block_node_t *qy_observer_within(struct qy_observer *o, uintptr_t from, uintptr_t to) {
    qy_block_node_t *out = NULL;
    qy_lock_take(&o->lock);
    for (qy_block_node_t *n = o->quarantine.newest, *next; n; n = next) {
        next = n->older;
        if (~n->raw < to && ~n->raw + n->raw_bytes > from) out = leaves(o, n, out);
    }
    qy_lock_drop(&o->lock);
    return out;
}

void qy_observer_forget(struct qy_observer *o, qy_block_node_t *chain) {
    qy_lock_take(&o->lock);
    for (qy_block_node_t *next; chain; chain = next) {
        next = chain->older;
        qy_assert(chain->freed);
        table_remove(o, chain);
        node_spare(o, chain);
    }
    qy_lock_drop(&o->lock);
}

void qy_observer_spare(struct qy_observer *o, qy_block_node_t *chain) {
    if (!chain) return;
    qy_lock_take(&o->lock);
    for (qy_block_node_t *next; chain; chain = next) {
        next = chain->older;
        node_spare(o, chain);
    }
    qy_lock_drop(&o->lock);
}

// ---- what may be asked --------------------------------------------------------------------------------------

qy_what_t qy_observer_explain(struct qy_observer *o, const void *ptr, qy_block_node_t *ret_copy) {
    qy_what_t what = QY_IS_NOTHING;
    qy_lock_take(&o->lock);
    const qy_block_node_t *n = node_find(o, ptr, false);
    if (n) what = QY_IS_BLOCK;
    else if ((n = node_find(o, ptr, true))) what = QY_WAS_FREED;
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

uint64_t qy_observer_live(struct qy_observer *o, size_t *ret_bytes) {
    qy_lock_take(&o->lock);
    uint64_t blocks = o->live.blocks;
    if (ret_bytes) *ret_bytes = o->live.bytes;
    qy_lock_drop(&o->lock);
    return blocks;
}

bool qy_observer_all(struct qy_observer *o, bool (*holds)(const qy_block_node_t *node, void *arg), void *arg) {
    bool all = true;
    qy_lock_take(&o->lock);
    for (const qy_block_node_t *n = o->live.newest; n && all; n = n->older) all = holds(n, arg);
    qy_lock_drop(&o->lock);
    return all;
}
