// SPDX-License-Identifier: MIT
// greedy.h: a stack that gives back every chunk that it finds too small for a request. worst_case.c shows what that
// costs.
#ifndef BENCH_GREEDY_H
#define BENCH_GREEDY_H

#include <quarry/pool.h>

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "../common/work.h"

typedef struct greedy_chunk {
    struct greedy_chunk *next;
    char *end;
} greedy_chunk_t;

typedef struct greedy_frame {
    greedy_chunk_t *chunk;
    char *pos;
} greedy_frame_t;

// Chunks behind the top one are idle. `parent` is NULL if they come from the kernel.
typedef struct greedy {
    greedy_frame_t top;
    greedy_chunk_t *first;
    quarry_pool_t *parent;
    size_t page, held, peak, gets;
} greedy_t;

enum { GREEDY_CHUNK = 64 << 10 };

static inline size_t greedy_bytes(const greedy_chunk_t *c) { return (size_t)(c->end - (const char *)c); }

static inline greedy_chunk_t *greedy_get(greedy_t *g, size_t size) {
    size_t bytes = (size + sizeof(greedy_chunk_t) + g->page - 1) & ~(g->page - 1);
    if (bytes < GREEDY_CHUNK) bytes = GREEDY_CHUNK;
    void *base = g->parent ? quarry_pool_alloc(g->parent, bytes, g->page, 0)
                           : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!base || base == MAP_FAILED) bench_fail("no memory for a chunk");
    greedy_chunk_t *c = base;
    *c = (greedy_chunk_t){.end = (char *)base + bytes};
    g->gets++;
    g->held += bytes;
    if (g->held > g->peak) g->peak = g->held;
    return c;
}

static inline void greedy_put(greedy_t *g, greedy_chunk_t *c) {
    size_t bytes = greedy_bytes(c);
    g->held -= bytes;
    if (g->parent) quarry_pool_free(g->parent, c, bytes);
    else munmap(c, bytes);
}

static inline void greedy_create(greedy_t *g, quarry_pool_t *parent, size_t page) {
    *g = (greedy_t){.parent = parent, .page = page};
    g->first = greedy_get(g, 1);
    g->top = (greedy_frame_t){g->first, (char *)(g->first + 1)};
}

static inline void greedy_destroy(greedy_t *g) {
    for (greedy_chunk_t *c = g->first, *next; c; c = next) {
        next = c->next;
        greedy_put(g, c);
    }
}

static __attribute__((noinline)) void greedy_turn(greedy_t *g, size_t size) {
    greedy_chunk_t *top = g->top.chunk;
    while (top->next && size > greedy_bytes(top->next) - sizeof *top) {
        greedy_chunk_t *small = top->next;
        top->next = small->next;
        greedy_put(g, small);
    }
    if (!top->next) top->next = greedy_get(g, size);
    g->top = (greedy_frame_t){top->next, (char *)(top->next + 1)};
}

static inline char *greedy_alloc(greedy_t *g, size_t size) {
    if (size > (size_t)(g->top.chunk->end - g->top.pos)) greedy_turn(g, size);
    char *p = g->top.pos;
    g->top.pos += size;
    return p;
}

#endif
