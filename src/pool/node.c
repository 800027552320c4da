// SPDX-License-Identifier: MIT
// node.c: see node.h. A hash table by address, and two lists by age.
#include "pool/node.h"

#include <string.h>

#include "base/num.h"
#include "os/os.h"
#include "pool/pool.h"

#if __has_include(<execinfo.h>)
#include <execinfo.h>
#else  // musl: nobody there walks a stack
#define backtrace(frames, count) ((void)(frames), 0)
#endif

#define FIRST_BUCKETS ((size_t)512)

typedef struct age {
    qy_block_node_t *newest, *oldest;
    size_t blocks, bytes;
} age_t;

struct qy_observer {
    qy_lock_t lock;  // of everything here
    qy_block_node_t **table;
    size_t buckets;  // a power of two
    age_t live, quarantine;
};

// ---- nodes ----------------------------------------------------------------------------------------------

qy_block_node_t *qy_node_new(void) { return qy_pool_meta_alloc(sizeof(qy_block_node_t)); }
void qy_node_free(qy_block_node_t *node) { qy_pool_meta_free(node, sizeof *node); }

// The frames of the pool itself are left out. backtrace() may allocate on its first call of a process,
// which is why no lock is held here.
void qy_node_trace(void *trace[QY_TRACE_FRAMES]) {
    enum { OURS = 3 };
    void *frames[QY_TRACE_FRAMES + OURS];
    int n = backtrace(frames, QY_TRACE_FRAMES + OURS);
    for (int i = 0; i < QY_TRACE_FRAMES; i++) trace[i] = i + OURS < n ? frames[i + OURS] : NULL;
}

static void print_trace(const char *what, void *const *trace) {
    char line[512];
    size_t n = qy_format(line, sizeof line, "quarry: note: %s at", what);
    for (int i = 0; i < QY_TRACE_FRAMES && trace[i]; i++) n += qy_format(line + n, sizeof line - n, " %p", trace[i]);
    n += qy_format(line + n, sizeof line - n, "\n");
    qy_os_write(2, line, n);
}

void qy_node_print_traces(const qy_block_node_t *node) {
    if (node->born[0]) print_trace("allocated", node->born);
    if (node->died[0]) print_trace("freed", node->died);
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

static void age_add(age_t *a, qy_block_node_t *n) {
    n->newer = NULL;
    n->older = a->newest;
    *(n->older ? &n->older->newer : &a->oldest) = n;
    a->newest = n;
    a->blocks++;
    a->bytes += n->size;
}

static void age_remove(age_t *a, qy_block_node_t *n) {
    qy_assert(a->blocks && a->bytes >= n->size);
    *(n->newer ? &n->newer->older : &a->newest) = n->older;
    *(n->older ? &n->older->newer : &a->oldest) = n->newer;
    a->blocks--;
    a->bytes -= n->size;
}

static void table_add(struct qy_observer *o, qy_block_node_t *n) {
    QY_NEEDS(&o->lock);
    qy_block_node_t **b = bucket_of(o, n->ptr);
    n->same_bucket = *b;
    *b = n;
}

static void table_remove(struct qy_observer *o, qy_block_node_t *n) {
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

bool qy_observer_add(struct qy_observer *o, qy_block_node_t *node) {
    qy_lock_take(&o->lock);
    // A full table still works; only one that cannot grow to half the need is given up.
    bool room = o->live.blocks + o->quarantine.blocks < o->buckets || table_grow(o) || o->live.blocks < o->buckets * 16;
    if (room) {
        table_add(o, node);
        age_add(&o->live, node);
    }
    qy_lock_drop(&o->lock);
    return room;
}

qy_block_node_t *qy_observer_take(struct qy_observer *o, const void *ptr) {
    qy_lock_take(&o->lock);
    qy_block_node_t *n = node_find(o, ptr, false);
    if (n) {
        table_remove(o, n);
        age_remove(&o->live, n);
    }
    qy_lock_drop(&o->lock);
    return n;
}

qy_block_node_t *qy_observer_take_groups(struct qy_observer *o, uint64_t first, uint64_t last) {
    qy_block_node_t *taken = NULL, **end = &taken;
    qy_lock_take(&o->lock);
    for (qy_block_node_t *n = o->live.newest, *next; n; n = next) {
        next = n->older;
        if (n->group < first || n->group > last) continue;
        table_remove(o, n);
        age_remove(&o->live, n);
        n->older = NULL;
        *end = n;
        end = &n->older;
    }
    qy_lock_drop(&o->lock);
    return taken;
}

static qy_block_node_t *evict(struct qy_observer *o, size_t blocks, size_t bytes) {
    QY_NEEDS(&o->lock);
    qy_block_node_t *out = NULL;
    while (o->quarantine.blocks > blocks || o->quarantine.bytes > bytes) {
        qy_block_node_t *n = o->quarantine.oldest;
        table_remove(o, n);
        age_remove(&o->quarantine, n);
        n->older = out;
        out = n;
    }
    return out;
}

qy_block_node_t *qy_observer_quarantine(struct qy_observer *o, qy_block_node_t *node) {
    qy_lock_take(&o->lock);
    node->freed = true;
    table_add(o, node);
    age_add(&o->quarantine, node);
    qy_block_node_t *out = evict(o, QY_QUARANTINE_BLOCKS, QY_QUARANTINE_BYTES);
    qy_lock_drop(&o->lock);
    return out;
}

qy_block_node_t *qy_observer_release_quarantine(struct qy_observer *o) {
    qy_lock_take(&o->lock);
    qy_block_node_t *out = evict(o, 0, 0);
    qy_lock_drop(&o->lock);
    return out;
}

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
