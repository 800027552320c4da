// SPDX-License-Identifier: MIT
// depot.c: see depot.h.
#include "heap/depot.h"

#include "heap/link.h"
#include "heap/sizeclass.h"
#include "heap/slab.h"
#include "pages/chunk.h"
#include "pages/map.h"
#include "pages/meta.h"
#include "rt/heuristics.h"

#define PART 32u                  // of the bytes in slabs one in so many may lie here, ...
#define FLOOR ((size_t)64 << 10)  // ... or as much as this, ...
#define LISTS 15u                 // ... so many lists of a class; ...
#define PART_IN_ORDER 2u          // ... but one in so many if the list to be put is in order

// In order is a list whose first links lead on in steps of a few blocks, all forwards or all backwards. Programs free
// either at random or in order, mostly, for long: of lists that are in order by so few links nine in ten are so by nine
// tenths of all their links.
#define LINKS 3u
#define STEP_BLOCKS 4u

static size_t generation_bytes(unsigned c) { return (size_t)qy_class_limit[c] * qy_class_size[c]; }

static bool is_in_order(unsigned c, const qy_block_t *b) {
    uintptr_t most = (uintptr_t)qy_class_size[c] * STEP_BLOCKS;
    bool forwards = true, backwards = true;
    for (unsigned i = 0; i < LINKS; i++) {
        const qy_block_t *next = qy_link_next(b);
        if (!next) return false;
        forwards &= (uintptr_t)next - (uintptr_t)b <= most;
        backwards &= (uintptr_t)b - (uintptr_t)next <= most;
        if (!forwards && !backwards) return false;
        b = next;
    }
    return true;
}

static bool has_place(const qy_heap_t *h, unsigned c, const qy_block_t *list) {
    size_t bytes = h->depot_bytes + generation_bytes(c);
    if (!QY_WITH(kept)) return false;
    if (bytes <= qy_max(h->slab_bytes / PART, FLOOR) && (!h->depot || h->depot->stack[c].count < LISTS)) return true;
    return bytes <= h->slab_bytes / PART_IN_ORDER && is_in_order(c, list);
}

// One more node on top of a stack whose own are full.
static bool add_node(qy_depot_t *depot, qy_depot_stack_t *stack) {
    qy_depot_node_t *node = depot->spare;
    if (node) depot->spare = node->below;
    else if (!(node = qy_meta_alloc(sizeof *node))) return false;
    node->below = stack->top;
    stack->top = node;
    return true;
}

bool qy_depot_put(qy_heap_t *h, unsigned c, qy_block_t *list) {
    QY_NEEDS(&h->lock);
    if (!has_place(h, c, list)) return false;
    if (!h->depot && !(h->depot = qy_meta_alloc(sizeof *h->depot))) return false;
    qy_depot_stack_t *stack = &h->depot->stack[c];
    uint32_t place = stack->count % QY_DEPOT_NODE_LISTS;
    if (!place && !add_node(h->depot, stack)) return false;
    stack->top->list[place] = list;
    stack->count++;
    h->depot_bytes += generation_bytes(c);
    h->depot_blocks += qy_class_limit[c];
    return true;
}

qy_block_t *qy_depot_take(qy_heap_t *h, unsigned c) {
    QY_NEEDS(&h->lock);
    if (!h->depot_bytes) return NULL;
    qy_depot_stack_t *stack = &h->depot->stack[c];
    if (!stack->count) return NULL;
    h->depot_bytes -= generation_bytes(c);
    h->depot_blocks -= qy_class_limit[c];
    qy_depot_node_t *node = stack->top;
    uint32_t place = --stack->count % QY_DEPOT_NODE_LISTS;
    if (!place) {
        stack->top = node->below;
        node->below = h->depot->spare;
        h->depot->spare = node;
    }
    return node->list[place];
}

bool qy_depot_home_class(qy_heap_t *h, unsigned c) {
    QY_NEEDS(&h->lock);
    bool any = false;
    for (qy_block_t *list; (list = qy_depot_take(h, c)); any = true) qy_slab_put_list(h, list);
    return any;
}

bool qy_depot_home(qy_heap_t *h) {
    QY_NEEDS(&h->lock);
    bool any = false;
    for (unsigned c = 1; h->depot_bytes && c < QY_CLASS_COUNT; c++) any |= qy_depot_home_class(h, c);
    return any;
}

const char *qy_depot_check(const qy_heap_t *h) {
    QY_NEEDS(&h->lock);
    size_t bytes = 0, blocks = 0;
    for (unsigned c = 1; h->depot && c < QY_CLASS_COUNT; c++) {
        const qy_depot_stack_t *stack = &h->depot->stack[c];
        const qy_depot_node_t *node = stack->top;
        for (uint32_t i = stack->count; i--;) {
            size_t n = 0;
            for (const qy_block_t *b = node->list[i % QY_DEPOT_NODE_LISTS]; b; b = qy_link_next(b), n++) {
                qy_chunk_t *chunk = qy_map_chunk(b);
                qy_slab_t *s = chunk ? qy_chunk_span(chunk, b) : NULL;
                if (!s || s->kind != QY_SPAN_SLAB || s->cls != c || atomic_load(&s->heap) != h)
                    return "a block in the depot is not of its heap and class";
            }
            if (!n) return "a list in the depot is empty";
            if (i % QY_DEPOT_NODE_LISTS == 0) node = node->below;
            bytes += generation_bytes(c);
            blocks += qy_class_limit[c];
        }
        if (node) return "the depot has a node too many";
    }
    return bytes == h->depot_bytes && blocks == h->depot_blocks ? NULL : "bytes in the depot are miscounted";
}
