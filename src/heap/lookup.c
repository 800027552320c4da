// SPDX-License-Identifier: MIT
// lookup.c: see lookup.h.
#include "heap/lookup.h"

#include "heap/foreign.h"
#include "heap/heaps.h"
#include "heap/huge.h"
#include "heap/run.h"
#include "heap/link.h"
#include "heap/sizeclass.h"
#include "heap/slab.h"
#include "heap/tiny.h"
#include "heap/zero.h"
#include "os/os.h"
#include "pages/chunk.h"
#include "pages/map.h"

static qy_object_t lookup_block(qy_chunk_t *chunk, qy_slab_t *s, const void *p) {
    qy_object_t o = {.chunk = chunk, .slab = s, .usable = qy_class_size[s->cls]};
    size_t offset = (size_t)((const char *)p - s->origin);
    // What was given out was carved before, by whomever: without the heap's lock the number may only be too low for
    // what is no block.
    if ((const char *)p < s->origin || offset >= (size_t)__atomic_load_n(&s->ncarved, __ATOMIC_RELAXED) * o.usable) {
        o.kind = QY_OBJECT_NEVER;
    } else if (offset % o.usable) {
        o.kind = QY_OBJECT_INTERIOR;
    } else if (s->cls == QY_CLASS_TINY) {
        o.kind = qy_tiny_is_free(s, offset / QY_TINY) ? QY_OBJECT_FREE : QY_OBJECT_BLOCK;
    } else {
        o.kind = qy_link_valid(p) ? QY_OBJECT_FREE : QY_OBJECT_BLOCK;
    }
    return o;
}

static qy_object_t lookup_huge(qy_huge_t *huge, const void *p) {
    qy_object_kind_t kind = p == huge->record.base ? QY_OBJECT_HUGE : QY_OBJECT_INTERIOR;
    return (qy_object_t){.kind = kind, .huge = huge, .usable = huge->mapped};
}

_Atomic bool qy_lookup_guards;

QY_COLD static void lookup_guarded(uintptr_t p, qy_object_t *ret) {
    qy_guard_block_t b;
    if (!qy_guard_find(p, &b) || p - b.address >= b.size) return;
    ret->usable = b.size;
    if (p == b.address) ret->kind = b.freed ? QY_OBJECT_FREE : QY_OBJECT_GUARDED;
    else if (!b.freed) ret->kind = QY_OBJECT_INTERIOR;
}

static qy_object_t lookup_span(qy_chunk_t *chunk, const void *p) {
    qy_object_t o = {.kind = QY_OBJECT_FOREIGN};
    qy_slab_t *s = qy_chunk_span(chunk, p);
    if (!s) return o;
    if (s == &qy_span_freed) {
        o.kind = QY_OBJECT_FREE;
        return o;
    }
    if (s->kind == QY_SPAN_SLAB) return lookup_block(chunk, s, p);
    o.kind = p == s->origin ? QY_OBJECT_RUN : QY_OBJECT_INTERIOR;
    return (qy_object_t){.kind = o.kind, .chunk = chunk, .slab = s, .usable = qy_run_usable(s)};
}

qy_object_t qy_lookup(const void *p) {
    qy_object_t o = {.kind = QY_OBJECT_FOREIGN};
    if (qy_zero_is_near(p)) {
        o.kind = (uintptr_t)p % QY_ALIGN_MIN ? QY_OBJECT_INTERIOR : qy_zero_is_used(p) ? QY_OBJECT_ZERO
                                                                                       : QY_OBJECT_NO_ZERO;
        return o;
    }
    if (qy_lookup_is_guarded(p)) {
        lookup_guarded((uintptr_t)p, &o);
        return o;
    }
    qy_map_record_t *record = qy_map_record(p);
    if (!record) {
        qy_huge_t *huge = qy_huge_around(p);
        if (huge) return (qy_object_t){.kind = QY_OBJECT_INTERIOR, .huge = huge, .usable = huge->mapped};
        if (qy_huge_was_freed(p)) o.kind = QY_OBJECT_FREE;
        return o;
    }
    switch (atomic_load_explicit(&record->kind, memory_order_relaxed)) {
    case QY_RECORD_HUGE: return lookup_huge((qy_huge_t *)record, p);
    case QY_RECORD_HUGE_FREE: o.kind = QY_OBJECT_FREE; return o;
    default: return lookup_span((qy_chunk_t *)record, p);
    }
}

// A purged block has lost its mark with its page; the slab knows.
static bool is_purged(const qy_slab_t *s, const void *p) {
    if (!(qy_map_tag(p) & QY_TAG_PURGED)) return false;
    uint32_t i;
    qy_heap_t *h = qy_heap_lock_of(s);
    bool purged = qy_slab_index(s, p, &i) && qy_slab_is_purged(s, i);
    qy_heap_unlock(h);
    return purged;
}

qy_object_t qy_lookup_must(const void *p) {
    qy_object_t o = qy_lookup(p);
    if (o.kind == QY_OBJECT_BLOCK && is_purged(o.slab, p)) o.kind = QY_OBJECT_FREE;
    switch (o.kind) {
    case QY_OBJECT_FOREIGN: qy_fatal(QY_FAULT_INVALID_FREE, p, qy_foreign_detail(p));
    case QY_OBJECT_NEVER: qy_fatal(QY_FAULT_INVALID_FREE, p, "never allocated");
    case QY_OBJECT_NO_ZERO: qy_fatal(QY_FAULT_DOUBLE_FREE, p, "block of %z byte%S", (size_t)0);
    case QY_OBJECT_INTERIOR: qy_fatal(QY_FAULT_INTERIOR_FREE, p, "inside an object of %z byte%S", o.usable);
    case QY_OBJECT_FREE:
        if (o.usable) qy_fatal(QY_FAULT_DOUBLE_FREE, p, "block of %z byte%S", o.usable);
        qy_fatal(QY_FAULT_DOUBLE_FREE, p, "large object");
    default: return o;
    }
}

qy_heap_t *qy_owner(qy_object_t o) {
    if (o.kind == QY_OBJECT_ZERO || o.kind == QY_OBJECT_GUARDED) return NULL;
    return atomic_load_explicit(o.kind == QY_OBJECT_HUGE ? &o.huge->heap : &o.slab->heap, memory_order_relaxed);
}
