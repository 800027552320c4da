// SPDX-License-Identifier: MIT
// waste.c: see waste.h.
#include "heap/waste.h"

#include "heap/heaps.h"
#include "pages/chunk.h"

#define WASTE_MIN ((size_t)4 << 20)     // less than this is not worth a thread
#define WASTE_HEAP ((size_t)512 << 10)  // of one heap of many; together they have no more than that, or each has this

_Atomic uint64_t qy_waste_since[QY_WASTE_KINDS];
static qy_waste_seen_t *seen;  // set before there is a second thread

void qy_waste_notify(qy_waste_seen_t *told) { seen = told; }

size_t qy_waste_bytes_in(const qy_heap_t *h) { return h->free_bytes - h->purged_bytes + h->depot_bytes; }

static size_t worth_it(void) { return qy_max(WASTE_MIN / qy_max(1, qy_heaps_made()), WASTE_HEAP); }

static void see(qy_heap_t *h, qy_waste_kind_t kind, size_t slabs) {
    if (seen) seen(h, kind, slabs);
}

static void waste_none(qy_waste_kind_t kind) {
    if (atomic_load_explicit(&qy_waste_since[kind], memory_order_relaxed))
        atomic_store_explicit(&qy_waste_since[kind], 0, memory_order_relaxed);
}

void qy_waste_of_pages(void) {
    if (qy_units_dirty_bytes() > WASTE_MIN) see(NULL, QY_WASTE_PAGES, 0);
    else waste_none(QY_WASTE_PAGES);
}

void qy_waste_in_slabs(qy_heap_t *h) {
    QY_NEEDS(&h->lock);
    size_t waste = qy_waste_bytes_in(h);
    if (waste > h->purge_mark + worth_it()) see(h, QY_WASTE_SLABS, waste - h->purge_mark);
    else if (waste < h->purge_mark / 2) h->purge_mark = waste;
    else waste_none(QY_WASTE_SLABS);
}

void qy_waste_in_mail(qy_heap_t *h, size_t bytes) {
    if (atomic_fetch_add_explicit(&h->mailed, bytes, memory_order_relaxed) + bytes > worth_it())
        see(NULL, QY_WASTE_SLABS, 0);
}

void qy_waste_after_fork(void) {
    waste_none(QY_WASTE_PAGES);
    waste_none(QY_WASTE_SLABS);
}
