// SPDX-License-Identifier: MIT
// leak_scan.c: see leak_scan.h.
#include "check/leak_scan.h"

#include "check/check.h"
#include "check/frames.h"
#include "check/leak_roots.h"
#include "check/pool_blocks.h"
#include "os/os.h"

// A block more than were counted: a thread that could not be stopped made it meanwhile.
#define SPARE_BLOCKS 4096u

static bool scan_count(const qy_check_block_t *b, void *arg) {
    (void)b;
    return ++*(uint32_t *)arg < UINT32_MAX - SPARE_BLOCKS - 1;
}

static bool scan_add(const qy_check_block_t *b, void *arg) {
    qy_leak_block_t block = {.address = b->address, .ordinal = b->ordinal, .stack = b->alloc_stack};
    block.size = b->size;
    block.family = b->family;
    return qy_leak_blocks_add(arg, &block);
}

// Of pools that outlive the process no block is looked for: their memory is the file's.
static void scan_count_pool(const qy_check_block_t *b, uintptr_t memory, size_t bytes, void *arg) {
    (void)memory, (void)bytes;
    if (!b->freed && !b->is_lasting) scan_count(b, arg);
}

static void scan_add_pool(const qy_check_block_t *b, uintptr_t memory, size_t bytes, void *arg) {
    (void)memory, (void)bytes;
    if (b->freed || b->is_lasting) return;
    qy_leak_block_t block = {.address = b->address, .ordinal = b->ordinal, .stack = b->alloc_stack};
    block.size = b->size;
    block.family = b->family;
    block.state = b->is_held ? QY_LEAK_HELD : 0;
    block.pool = b->pool_number;
    qy_leak_blocks_add(arg, &block);
}

static bool collect(qy_leak_blocks_t *blocks) {
    uint32_t count = 0;
    qy_check_each_live(scan_count, &count);
    qy_check_pool_each(scan_count_pool, &count);
    if (!qy_leak_blocks_begin(blocks, count + SPARE_BLOCKS)) return false;
    qy_check_each_live(scan_add, blocks);
    qy_check_pool_each(scan_add_pool, blocks);
    return qy_leak_blocks_ready(blocks);
}

// Live ones are looked at as blocks, and what is in ended ones leads nowhere.
static void pool_is_no_root(const qy_check_block_t *b, uintptr_t memory, size_t bytes, void *arg) {
    if (!b->is_lasting) qy_leak_roots_without(arg, memory, memory + bytes);
}

static void records_are_no_root(const void *memory, size_t bytes, void *arg) {
    qy_leak_roots_without(arg, (uintptr_t)memory, (uintptr_t)memory + bytes);
}
static void flood_records(const void *memory, size_t bytes, void *arg) {
    qy_leak_flood_records(arg, (uintptr_t)memory, (uintptr_t)memory + bytes);
}

// A frame ends its blocks, and a pool its chunks, whether or not the program has pointers to them.
static void flood_held_blocks(qy_leak_flood_t *f) {
    for (uint32_t i = 0; i < f->space.blocks->count && !f->stopped; i++)
        if (f->space.blocks->all[i].state & QY_LEAK_HELD) qy_leak_flood_block(f, i);
}

// What the dynamic linker allocates is its own for good: tables of thread-local storage, of which it keeps no pointer
// to the start, and the storage itself, in which the program has pointers.
static void flood_blocks_of_linker(const qy_leak_scan_t *scan, qy_leak_flood_t *f) {
    for (uint32_t i = 0; i < f->space.blocks->count && !f->stopped; i++) {
        qy_check_frame_t frame;
        if (!f->space.blocks->all[i].stack) continue;
        qy_check_frame(f->space.blocks->all[i].stack, &frame);
        if (frame.pc >= scan->linker[0] && frame.pc < scan->linker[1]) qy_leak_flood_block(f, i);
    }
}

typedef struct threads {
    qy_leak_roots_t *roots;
    qy_leak_flood_t *flood;
} threads_t;
static void flood_thread(const qy_os_standing_t *standing, void *arg) {
    const threads_t *t = arg;
    qy_leak_roots_thread(t->roots, t->flood, standing);
}

static void flood_all(qy_leak_scan_t *scan, qy_leak_roots_t *roots, qy_leak_flood_t *f) {
    threads_t threads = {roots, f};
    qy_leak_roots_thread(roots, f, scan->here);
    qy_os_stop_each(flood_thread, &threads);
    flood_blocks_of_linker(scan, f);
    flood_held_blocks(f);
    qy_check_pool_each_records(flood_records, f);
    qy_leak_roots_flood(roots, f);
    qy_leak_flood_possible(f);
    scan->roots_bytes = roots->bytes;
}

// Where a thread ran on, or roots are not known, no block is surely lost.
static void scan_take(
    const qy_leak_block_t *block, qy_leak_kind_t kind, uint64_t held_bytes, uint64_t held_blocks, void *arg) {
    qy_leak_scan_t *scan = arg;
    if (scan->incomplete && (kind == QY_LEAK_DEFINITE || kind == QY_LEAK_INDIRECT)) {
        kind = QY_LEAK_IS_POSSIBLE;
        held_bytes = held_blocks = 0;
    }
    scan->bytes[kind] += block->size;
    scan->blocks[kind]++;
    scan->heap_bytes += block->size;
    qy_leak_sites_add(&scan->sites, block, kind, held_bytes, held_blocks);
}

static const char *doubt(const qy_leak_scan_t *scan) {
    if (scan->others->unknown) return "not all threads are known: nothing is surely lost";
    if (scan->others->lost) return "not all threads could be stopped: nothing is surely lost";
    return NULL;
}

static const char *scan_with(qy_leak_scan_t *scan, qy_leak_blocks_t *blocks, qy_leak_roots_t *roots) {
    if (!qy_leak_roots_begin(roots)) return "/proc/self/maps cannot be read";
    if (!qy_leak_roots_without_own(roots, scan->copy)) return "a thread was stopped within the heap";
    qy_check_pool_each(pool_is_no_root, roots);
    qy_check_pool_each_records(records_are_no_root, roots);
    roots->shared = scan->shared;
    qy_leak_flood_t f = {.space = {blocks, qy_leak_roots_is_vtable, roots, QY_CHECK_NEW_ARRAY}};
    f.deadline = scan->deadline;
    if (!qy_leak_flood_begin(&f)) return f.stopped;
    flood_all(scan, roots, &f);
    if (!f.stopped) qy_leak_flood_sort_out(&f, scan_take, scan);
    qy_leak_flood_end(&f);
    return f.stopped;
}

void qy_leak_scan_run(qy_leak_scan_t *scan) {
    qy_leak_blocks_t blocks = {0};
    qy_leak_roots_t roots = {0};
    scan->incomplete = doubt(scan);
    const char *failed = collect(&blocks) ? scan_with(scan, &blocks, &roots) : "no memory for the scan";
    qy_leak_roots_end(&roots);
    qy_leak_blocks_end(&blocks);
    if (failed) scan->incomplete = failed;
    scan->failed = failed != NULL;
    if (scan->sites.full) scan->incomplete = "no memory for the sums of all sites";
}

void qy_leak_scan_end(qy_leak_scan_t *scan) { qy_leak_sites_end(&scan->sites); }
