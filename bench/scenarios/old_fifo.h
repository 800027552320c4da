// SPDX-License-Identifier: MIT
// old_fifo.h: a FIFO as its designers first had it, for comparison only. Each block has a head of 8 bytes, pages come
// from calloc, and a page that has no live block any more leaves its place: the current one is put away, one is kept,
// all others are freed. A page that is kept is cleared as far as it was used.
#ifndef BENCH_OLD_FIFO_H
#define BENCH_OLD_FIFO_H

#include "scenario.h"

typedef struct old_page {
    uint32_t used_size, used_blocks;
    size_t size;
    char area[] __attribute__((aligned(8)));
} old_page_t;

typedef struct old_block {
    uint32_t page_offset, size;
    char area[] __attribute__((aligned(8)));
} old_block_t;

typedef struct old_fifo {
    old_page_t *current, *spare;
    size_t page_bytes;
    uint64_t slow_calls, pages_taken;
} old_fifo_t;

static old_page_t *old_page_new(old_fifo_t *f, size_t bytes) {
    old_page_t *page = f->spare;
    if (page && page->size >= bytes) {
        f->spare = NULL;
        return page;
    }
    const size_t area = bytes > f->page_bytes ? bytes : f->page_bytes;
    page = must_have(calloc(1, sizeof *page + area));
    page->size = area;
    f->pages_taken++;
    return page;
}

static void *old_fifo_alloc(old_fifo_t *f, size_t bytes) {
    const size_t room = (bytes + sizeof(old_block_t) + 7) & ~(size_t)7;
    old_page_t *page = f->current;
    if (!page || page->size - page->used_size < room) {
        f->slow_calls++;
        page = f->current = old_page_new(f, room);
    }
    old_block_t *const block = (old_block_t *)(page->area + page->used_size);
    block->page_offset = (uint32_t)((char *)block - (char *)page);
    block->size = (uint32_t)bytes;
    page->used_size += (uint32_t)room;
    page->used_blocks++;
    return block->area;
}

static void old_fifo_free(old_fifo_t *f, void *ptr) {
    old_block_t *const block = (old_block_t *)((char *)ptr - offsetof(old_block_t, area));
    old_page_t *const page = (old_page_t *)((char *)block - block->page_offset);
    if (--page->used_blocks) return;
    f->slow_calls++;
    if (f->current == page) f->current = NULL;
    if (f->spare) {
        free(page);
        return;
    }
    memset(page->area, 0, page->used_size);
    page->used_size = 0;
    f->spare = page;
}

static void old_fifo_end(old_fifo_t *f) {
    if (f->current && f->current != f->spare) free(f->current);
    free(f->spare);
}

#endif
