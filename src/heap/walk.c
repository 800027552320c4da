// SPDX-License-Identifier: MIT
// walk.c: see walk.h.
#include "heap/walk.h"

#include <errno.h>
#include <string.h>

#include "heap/depot.h"
#include "heap/heaps.h"
#include "heap/huge.h"
#include "heap/run.h"
#include "heap/link.h"
#include "heap/sizeclass.h"
#include "heap/slab.h"
#include "heap/tiny.h"
#include "pages/chunk.h"
#include "pages/map.h"
#include "pages/meta.h"

#define BLOCKS_MAX QY_META_BITS_MAX

// Blocks of s that are neither at home nor purged, by the bits of `out`.
static void mark_out(const qy_slab_t *s, uint64_t out[BLOCKS_MAX / 64]) {
    memset(out, 0, BLOCKS_MAX / 8);
    for (uint32_t i = 0; i < s->ncarved; i++)
        if (qy_slab_bit(s->home, i)) (void)qy_link_next(qy_slab_block(s, i));  // not written to
        else if (!qy_slab_is_purged(s, i)) out[i / 64] |= UINT64_C(1) << (i % 64);
    for (int k = 0; k < 2; k++)
        for (qy_block_t *b = k ? s->chain2 : s->chain; b; b = qy_link_next(b)) {
            uint32_t i;
            if (!qy_slab_index(s, b, &i)) qy_fatal(QY_FAULT_CORRUPT_LINK, b, "link leads out of the slab");
            out[i / 64] &= ~(UINT64_C(1) << (i % 64));
        }
}

int qy_heap_walk(qy_heap_t *h, int (*visit)(void *block, size_t usable, void *arg), void *arg) {
    uint64_t out[BLOCKS_MAX / 64];
    int stop = 0;
    qy_heap_lock(h);
    qy_lock_go_out(&h->lock);
    for (qy_slab_t *s = h->all; s && !stop; s = s->all_next) {
        if (s->kind == QY_SPAN_RUN) {
            stop = visit(s->origin, qy_run_usable(s), arg);
            continue;
        }
        if (s->cls == QY_CLASS_TINY) {
            for (uint32_t i = 0; i < s->ncarved && !stop; i++)
                if (!qy_tiny_is_free(s, i)) stop = visit(s->origin + i * QY_TINY, QY_TINY, arg);
            continue;
        }
        mark_out(s, out);
        size_t size = qy_class_size[s->cls];
        for (uint32_t i = 0; i < s->ncarved && !stop; i++)
            if (out[i / 64] >> (i % 64) & 1) stop = visit(s->origin + i * size, size, arg);
    }
    if (!stop) stop = qy_huge_each(h, visit, arg);
    qy_lock_take(qy_heaps_lock());  // not amid a fork, which relies on it that this heap stays as it is (fork.c)
    qy_lock_come_back(&h->lock);
    qy_heap_unlock(h);
    qy_lock_drop(qy_heaps_lock());
    return stop;
}

const char *qy_heap_verify(qy_heap_t *h) {
    const char *wrong = NULL;
    size_t slabs = 0, runs = 0, bytes = 0, home = 0, purged = 0;
    qy_heap_lock(h);
    for (qy_slab_t *s = h->all; s && !wrong; s = s->all_next) {
        if (s->all_next && s->all_next->all_prev != s) wrong = "the list of spans is broken";
        if (s->kind != QY_SPAN_SLAB) {
            runs++;
            continue;
        }
        slabs++;
        bytes += (size_t)s->units << QY_UNIT_SHIFT;
        home += (size_t)qy_slab_home(s) * qy_class_size[s->cls];
        purged += (size_t)s->npurged * qy_class_size[s->cls];
        if (!wrong) wrong = qy_slab_check(h, s);
    }
    if (!wrong && (slabs != h->nslabs || runs != h->nruns)) wrong = "spans are miscounted";
    if (!wrong && bytes != h->slab_bytes) wrong = "bytes of slabs are miscounted";
    if (!wrong && (home != h->free_bytes || purged != h->purged_bytes)) wrong = "free bytes are miscounted";
    if (!wrong) wrong = qy_depot_check(h);
    for (unsigned c = 1; c < QY_CLASS_COUNT && !wrong; c++) {
        uint32_t empty = 0, n = 0;
        for (qy_slab_t *s = h->all; s; s = s->all_next) {
            if (s->kind != QY_SPAN_SLAB || s->cls != c) continue;
            n++;
            empty += qy_slab_home(s) == s->ncarved;
        }
        if (n != h->bins[c].nslabs || (n != 0) != (h->used[c / 64] >> c % 64 & 1) || empty != h->bins[c].nempty)
            wrong = "slabs of a class are miscounted";
    }
    qy_heap_unlock(h);
    // What all heaps stand on.
    if (!wrong) wrong = qy_units_check();
    if (!wrong) wrong = qy_huge_check();
    return wrong ? wrong : qy_map_check();
}
