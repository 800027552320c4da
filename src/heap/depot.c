// SPDX-License-Identifier: MIT
// depot.c: see depot.h.
#include "heap/depot.h"

#include "heap/chunk.h"
#include "heap/link.h"
#include "heap/lists.h"
#include "heap/map.h"
#include "heap/meta.h"
#include "heap/sizeclass.h"
#include "heap/slab.h"

#define PART 32u                  // of the bytes in slabs one in so many may lie here
#define FLOOR ((size_t)64 << 10)  // or as much as this

static size_t generation_bytes(unsigned c) { return (size_t)qy_class_limit[c] * qy_class_size[c]; }

bool qy_depot_put(qy_heap_t *h, unsigned c, qy_block_t *list) {
    if (h->depot_bytes + generation_bytes(c) > qy_max(h->slab_bytes / PART, FLOOR)) return false;
    if (!h->depot && !(h->depot = qy_meta_alloc(sizeof *h->depot))) return false;
    qy_shelf_t *shelf = &h->depot->shelf[c];
    if (shelf->count == QY_SHELF_LISTS) return false;
    shelf->list[shelf->count++] = list;
    h->depot_bytes += generation_bytes(c);
    h->depot_blocks += qy_class_limit[c];
    return true;
}

qy_block_t *qy_depot_take(qy_heap_t *h, unsigned c) {
    if (!h->depot_bytes) return NULL;
    qy_shelf_t *shelf = &h->depot->shelf[c];
    if (!shelf->count) return NULL;
    h->depot_bytes -= generation_bytes(c);
    h->depot_blocks -= qy_class_limit[c];
    return shelf->list[--shelf->count];
}

bool qy_depot_home_class(qy_heap_t *h, unsigned c) {
    bool any = false;
    for (qy_block_t *list; (list = qy_depot_take(h, c)); any = true) qy_lists_home(h, list);
    return any;
}

bool qy_depot_home(qy_heap_t *h) {
    bool any = false;
    for (unsigned c = 1; h->depot_bytes && c < QY_CLASS_COUNT; c++) any |= qy_depot_home_class(h, c);
    return any;
}

const char *qy_depot_check(const qy_heap_t *h) {
    size_t bytes = 0, blocks = 0;
    for (unsigned c = 1; h->depot && c < QY_CLASS_COUNT; c++) {
        for (uint32_t i = 0; i < h->depot->shelf[c].count; i++) {
            size_t n = 0;
            for (const qy_block_t *b = h->depot->shelf[c].list[i]; b; b = qy_link_next(b), n++) {
                qy_chunk_t *chunk = qy_map_chunk(b);
                qy_slab_t *s = chunk ? atomic_load(&chunk->span[((uintptr_t)b & (QY_CHUNK - 1)) >> QY_UNIT_SHIFT]) : NULL;
                if (!s || s->kind != QY_SPAN_SLAB || s->cls != c || atomic_load(&s->heap) != h) return "a block in the depot is not of its heap and class";
            }
            if (!n) return "a list in the depot is empty";
            bytes += generation_bytes(c);
            blocks += qy_class_limit[c];
        }
    }
    return bytes == h->depot_bytes && blocks == h->depot_blocks ? NULL : "bytes in the depot are miscounted";
}
