// SPDX-License-Identifier: MIT
// first_class.c: a heap of its own is the same structure as a thread's heap, without thread caches:
// every call takes its lock, so all free blocks are at home and it can be walked and destroyed.
#include "heap/first_class.h"

#include "heap/alloc.h"
#include "heap/clear.h"
#include "heap/heaps.h"
#include "heap/huge.h"
#include "heap/run.h"
#include "heap/lookup.h"
#include "heap/purge.h"
#include "heap/sizeclass.h"
#include "heap/slab.h"
#include "heap/moved.h"
#include "pages/chunk.h"
#include "pages/map.h"
#include "rt/diag.h"

#include <errno.h>
#include <string.h>

qy_heap_t *qy_first_class_create(const char *name, size_t limit) {
    qy_heap_t *h = qy_heap_init() ? qy_heap_new(QY_HEAP_FIRST_CLASS) : NULL;
    if (!h) return qy_out_of_memory();
    h->limit = limit;
    qy_format(h->name, sizeof h->name, "%s", name ? name : "heap");
    return h;
}

void qy_first_class_destroy(qy_heap_t *h) {
    qy_heap_lock(h);
    for (qy_slab_t *s; (s = h->all);) {
        if (s->kind == QY_SPAN_SLAB) {
            qy_slab_release(h, s);
        } else {
            qy_chunk_t *chunk = qy_map_chunk(s->base);
            atomic_store(&chunk->span[(size_t)(s->base - chunk->record.base) >> QY_UNIT_SHIFT], &qy_span_freed);
            qy_run_release(h, chunk, s);
        }
    }
    qy_huge_release_all(h);
    memset(h->bins, 0, sizeof h->bins);
    size_t held = h->held_bytes;
    qy_heap_unlock(h);
    qy_heap_recycle(h);
    qy_moved_here(held);
}

// The least that can serve it adds so much to what is held: a slab of its class, or a mapping of its own.
static size_t least_more(const qy_heap_t *h, size_t align, size_t n) {
    unsigned c = qy_class_aligned(h->cls, align, qy_max(n, 1));
    if (!c || c > QY_CLASS_SLAB_64K) return qy_round_up(n, qy_os_page_size());
    return qy_class_slab_units(c, h->bins[c].nslabs) * QY_UNIT;
}

void *qy_first_class_alloc(qy_heap_t *h, size_t align, size_t n, bool zero) {
    if (qy_size_is_hopeless(align, n)) return qy_out_of_memory();
    for (int tries = 0; tries < 2; tries++) {
        bool fresh = zero;
        qy_heap_lock(h);
        void *p = qy_alloc_locked(h, align, n, &fresh);
        // Slabs that are kept empty count for the limit: without them there may be room.
        if (!p && h->limit && n <= h->limit && qy_slab_release_empty(h) > 0) {
            fresh = zero;
            p = qy_alloc_locked(h, align, n, &fresh);
        }
        // At its limit giving memory back elsewhere does not help.
        bool at_limit = !p && h->limit && h->held_bytes + least_more(h, align, n) > h->limit;
        qy_heap_unlock(h);
        if (p) {
            qy_moved_here(n);
            if (zero && !fresh) qy_clear(p, n);
            return p;
        }
        if (at_limit || tries) break;
        qy_purge_everything();
    }
    return qy_out_of_memory();
}

static qy_object_t must_be_of(qy_heap_t *h, void *p) {
    qy_object_t o = qy_lookup_must(p);
    if (qy_owner(o) != h) qy_fatal(QY_FAULT_WRONG_HEAP, p, "heap \"%s\"", h->name);
    return o;
}

void *qy_first_class_realloc(qy_heap_t *h, void *p, size_t n) {
    if (!p) return qy_first_class_alloc(h, QY_ALIGN_MIN, n, false);
    qy_object_t o = must_be_of(h, p);
    if (n == 0) {
        qy_free_slow(p);
        return NULL;
    }
    if (n > PTRDIFF_MAX) return qy_out_of_memory();
    void *q = qy_resize(p, o, n);
    if (q) return q;
    int saved = errno;
    bool sparse = qy_copy_is_sparse(o.usable, n);
    q = qy_first_class_alloc(h, QY_ALIGN_MIN, n, sparse);
    if (!q && n <= o.usable) {
        errno = saved;
        return p;
    }
    if (!q) return NULL;
    if (sparse) qy_copy_sparse(q, p, o.usable);
    else memcpy(q, p, qy_min(o.usable, n));
    qy_free_slow(p);
    return q;
}

void qy_first_class_free(qy_heap_t *h, void *p) {
    if (!p) return;
    must_be_of(h, p);
    qy_free_slow(p);
}

void qy_first_class_set_limit(qy_heap_t *h, size_t limit) {
    qy_heap_lock(h);
    h->limit = limit;
    qy_heap_unlock(h);
}

static int add_huge(void *p, size_t usable, void *arg) {
    (void)p;
    quarry_heap_stats_t *st = arg;
    st->live_blocks++;
    st->live_bytes += usable;
    return 0;
}

void qy_first_class_stats(qy_heap_t *h, quarry_heap_stats_t *ret) {
    quarry_heap_stats_t st = {0};
    qy_heap_lock(h);
    for (qy_slab_t *s = h->all; s; s = s->all_next) {
        bool slab = s->kind == QY_SPAN_SLAB;
        size_t blocks = slab ? s->ncarved - qy_slab_home(s) : 1;
        st.live_blocks += blocks;
        st.live_bytes += blocks * (slab ? qy_class_size[s->cls] : qy_run_usable(s));
    }
    qy_huge_each(h, add_huge, &st);
    st.held_bytes = h->held_bytes;
    st.limit = h->limit;
    qy_heap_unlock(h);
    *ret = st;
}
