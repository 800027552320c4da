// SPDX-License-Identifier: MIT
// leak_blocks.c: see leak_blocks.h.
//
// Blocks come slab by slab: ascending within a page, but the pages in any order. So pages are sorted, of which there
// are few, and the blocks copied in their order. Where that does not suffice (two slabs never share a page, but nothing
// here relies on it), the blocks themselves are sorted.
#include "check/leak_blocks.h"

#include <string.h>

#include "base/num.h"
#include "check/leak_memory.h"
#include "check/leak_sort.h"

#define CHUNK_SHIFT 21
#define PAGE_SHIFT 12
#define CHUNK_PAGES ((size_t)1 << (CHUNK_SHIFT - PAGE_SHIFT))
#define PAGE_WORDS (CHUNK_PAGES + 1)  // and where the next chunk's blocks begin
#define LONE UINT32_MAX               // one block fills the chunk

typedef struct qy_leak_chunk {
    uint64_t key;    // address >> CHUNK_SHIFT, + 1; 0: empty
    uint32_t pages;  // which table of pages, or LONE
    uint32_t block;  // of LONE
} qy_leak_chunk_t;

bool qy_leak_blocks_begin(qy_leak_blocks_t *b, uint32_t room) {
    *b = (qy_leak_blocks_t){.room = room};
    b->all = qy_leak_memory((size_t)room * sizeof *b->all);
    return b->all != NULL;
}

bool qy_leak_blocks_add(qy_leak_blocks_t *b, const qy_leak_block_t *block) {
    if (b->count == b->room) return false;
    b->all[b->count++] = *block;
    return true;
}

void qy_leak_blocks_end(qy_leak_blocks_t *b) {
    qy_leak_memory_end(b->all, (size_t)b->room * sizeof *b->all);
    qy_leak_memory_end(b->chunks, b->chunk_bytes);
    qy_leak_memory_end(b->pages, b->page_bytes);
    *b = (qy_leak_blocks_t){0};
}

// ---- sorting --------------------------------------------------------------------------------------

static bool is_sorted(const qy_leak_blocks_t *b) {
    for (uint32_t i = 1; i < b->count; i++)
        if (b->all[i].address <= b->all[i - 1].address) return false;
    return true;
}

// Consecutive blocks that begin on one page.
typedef struct page_run {
    uintptr_t page;
    uint32_t first, count;
} page_run_t;

static bool run_before(size_t a, size_t b, void *arg) {
    const page_run_t *runs = arg;
    return runs[a].page < runs[b].page;
}
static void run_swap(size_t a, size_t b, void *arg) {
    page_run_t *runs = arg, kept = runs[a];
    runs[a] = runs[b];
    runs[b] = kept;
}

static size_t runs_of(const qy_leak_blocks_t *b, page_run_t *runs) {
    size_t n = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        uintptr_t page = b->all[i].address >> PAGE_SHIFT;
        bool same = i && page == b->all[i - 1].address >> PAGE_SHIFT;
        if (!same && runs) runs[n] = (page_run_t){page, i, 0};
        n += !same;
        if (runs) runs[n - 1].count++;
    }
    return n;
}

static bool sort_by_pages(qy_leak_blocks_t *b) {
    size_t bytes = runs_of(b, NULL) * sizeof(page_run_t), at = 0;
    page_run_t *runs = qy_leak_memory(bytes);
    qy_leak_block_t *sorted = runs ? qy_leak_memory((size_t)b->room * sizeof *sorted) : NULL;
    if (sorted) {
        size_t n = runs_of(b, runs);
        qy_leak_sort(n, &(qy_leak_sort_t){run_before, run_swap, runs});
        for (size_t i = 0; i < n; at += runs[i++].count)
            memcpy(sorted + at, b->all + runs[i].first, runs[i].count * sizeof *sorted);
        qy_leak_memory_end(b->all, (size_t)b->room * sizeof *b->all);
        b->all = sorted;
    }
    qy_leak_memory_end(runs, bytes);
    return sorted != NULL;
}

static bool block_before(size_t a, size_t b, void *arg) {
    const qy_leak_block_t *all = arg;
    return all[a].address < all[b].address;
}
static void block_swap(size_t a, size_t b, void *arg) {
    qy_leak_block_t *all = arg, kept = all[a];
    all[a] = all[b];
    all[b] = kept;
}

// ---- the table of pages ---------------------------------------------------------------------------

static uintptr_t leak_block_end(const qy_leak_block_t *block) {
    return block->address + qy_max(block->size, (uint64_t)1);
}

static size_t chunk_hash(const qy_leak_blocks_t *b, uint64_t key) {
    return (size_t)(key * 0x9e3779b97f4a7c15u >> 32) & b->chunk_mask;
}

static qy_leak_chunk_t *leak_chunk_at(const qy_leak_blocks_t *b, uint64_t key) {
    size_t i = chunk_hash(b, key);
    while (b->chunks[i].key && b->chunks[i].key != key) i = (i + 1) & b->chunk_mask;
    return &b->chunks[i];
}

// Calls for each chunk in which a block begins (block: the first that does), and for each other one that a block
// reaches into. Twice for a chunk of both kinds.
static void each_chunk(
    qy_leak_blocks_t *b, void (*fn)(qy_leak_blocks_t *b, uint64_t key, uint32_t block, bool begins)) {
    for (uint32_t i = 0; i < b->count; i++) {
        uint64_t from = b->all[i].address >> CHUNK_SHIFT, to = (leak_block_end(&b->all[i]) - 1) >> CHUNK_SHIFT;
        if (!i || b->all[i - 1].address >> CHUNK_SHIFT != from) fn(b, from + 1, i, true);
        for (uint64_t at = from + 1; at <= to; at++) fn(b, at + 1, i, false);
    }
}

static void count_chunk(qy_leak_blocks_t *b, uint64_t key, uint32_t block, bool begins) {
    (void)key, (void)block;
    b->chunk_bytes++;
    b->page_bytes += begins;
}

static void fill_pages(const qy_leak_blocks_t *b, uint32_t *pages, uint64_t chunk, uint32_t block) {
    for (size_t page = 0; page < PAGE_WORDS; page++) {
        uintptr_t begin = (uintptr_t)(chunk << CHUNK_SHIFT) + (page << PAGE_SHIFT);
        while (block < b->count && b->all[block].address < begin) block++;
        pages[page] = block;
    }
}

static void enter_chunk(qy_leak_blocks_t *b, uint64_t key, uint32_t block, bool begins) {
    qy_leak_chunk_t *c = leak_chunk_at(b, key);
    bool known = c->key != 0;
    c->key = key;
    if (begins) {
        c->pages = (uint32_t)b->page_bytes++;
        fill_pages(b, b->pages + (size_t)c->pages * PAGE_WORDS, key - 1, block);
    } else if (!known) {
        *c = (qy_leak_chunk_t){key, LONE, block};
    }
}

static bool make_table(qy_leak_blocks_t *b) {
    each_chunk(b, count_chunk);
    size_t entries = 16;
    while (entries < 2 * b->chunk_bytes) entries *= 2;
    b->chunk_mask = entries - 1;
    b->chunk_bytes = entries * sizeof *b->chunks;
    size_t bytes = b->page_bytes * PAGE_WORDS * sizeof *b->pages;
    b->chunks = qy_leak_memory(b->chunk_bytes);
    b->pages = qy_leak_memory(bytes);
    b->page_bytes = 0;
    if (b->chunks && b->pages) each_chunk(b, enter_chunk);
    b->page_bytes = bytes;
    return b->chunks && b->pages;
}

bool qy_leak_blocks_ready(qy_leak_blocks_t *b) {
    if (!is_sorted(b) && !sort_by_pages(b)) return false;
    if (!is_sorted(b)) qy_leak_sort(b->count, &(qy_leak_sort_t){block_before, block_swap, b->all});
    if (b->count) {
        b->begin = b->all[0].address;
        b->end = leak_block_end(&b->all[b->count - 1]);
    }
    return make_table(b);
}

uint32_t qy_leak_blocks_slow(const qy_leak_blocks_t *b, uintptr_t address) {
    const qy_leak_chunk_t *c = leak_chunk_at(b, (address >> CHUNK_SHIFT) + 1);
    if (!c->key) return QY_LEAK_NONE;
    uint32_t found = c->block;
    if (c->pages != LONE) {
        const uint32_t *pages = b->pages + (size_t)c->pages * PAGE_WORDS;
        size_t page = (address >> PAGE_SHIFT) & (CHUNK_PAGES - 1);
        uint32_t low = pages[page], high = pages[page + 1];
        while (low < high) {  // the first block behind the address
            uint32_t middle = low + (high - low) / 2;
            if (b->all[middle].address <= address) low = middle + 1;
            else high = middle;
        }
        if (!low) return QY_LEAK_NONE;
        found = low - 1;
    }
    const qy_leak_block_t *block = &b->all[found];
    return address >= block->address && address < leak_block_end(block) ? found : QY_LEAK_NONE;
}
