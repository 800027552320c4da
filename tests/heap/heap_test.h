// SPDX-License-Identifier: MIT
// heap_test.h: what the white-box tests of the heap share: looking at slabs, checking every heap,
// and a quiet clock.
#ifndef QUARRY_TESTS_HEAP_TEST_H
#define QUARRY_TESTS_HEAP_TEST_H

#include <quarry/heap.h>
#include <quarry/malloc.h>
#include <quarry/stats.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "captured.h"
#include "harness.h"
#include "heap/cache.h"
#include "heap/cache_flush.h"
#include "heap/depot.h"
#include "heap/first_class.h"
#include "heap/heaps.h"
#include "heap/huge.h"
#include "heap/large.h"
#include "heap/run.h"
#include "heap/link.h"
#include "heap/lookup.h"
#include "heap/moved.h"
#include "heap/purge.h"
#include "heap/remote.h"
#include "heap/sizeclass.h"
#include "heap/slab.h"
#include "heap/stats.h"
#include "heap/tiny.h"
#include "heap/walk.h"
#include "heap/waste.h"
#include "os/fake.h"
#include "os/os.h"
#include "pages/chunk.h"
#include "pages/map.h"
#include "pages/purging.h"
#include "pages/meta.h"
#include "rt/opts.h"

#define FAULT(call) (1u << QY_OS_##call)

// The heap is up, and nothing is given back but when a test asks for it. (The library's own
// constructor, which reads the environment, runs earlier; in a test that calls nothing of the API it
// is not even linked.)
__attribute__((constructor)) static void quiet(void) {
    if (!qy_heap_init()) TEST_FAIL("no memory for the heap's tables");
    qy_opts.purge_thread = false;
    qy_opts.purge_delay = 600000;
}

__attribute__((unused)) static qy_slab_t *span_of(const void *p) {
    qy_chunk_t *c = qy_map_chunk(p);
    return c ? atomic_load(&c->span[((uintptr_t)p & (QY_CHUNK - 1)) / QY_UNIT]) : NULL;
}

__attribute__((unused)) static qy_huge_t *huge_of(const void *p) {
    qy_map_record_t *r = qy_map_record(p);
    return r && atomic_load(&r->kind) != QY_RECORD_UNITS ? (qy_huge_t *)r : NULL;
}

// What the map must say of each unit of a slab.
__attribute__((unused)) static qy_tag_t tag_of(const qy_heap_t *h, const qy_slab_t *s) {
    return h->owner | (s->npurged && s->cls != QY_CLASS_TINY ? QY_TAG_PURGED : 0) | s->cls;
}

__attribute__((unused)) static uint32_t remote_count(const qy_slab_t *s) {
    return (uint32_t)(atomic_load(&s->remote) >> QY_REMOTE_COUNT_SHIFT & QY_REMOTE_MASK);
}

__attribute__((unused)) static void verify(qy_heap_t *h) {
    const char *wrong = qy_heap_verify(h);
    if (wrong) TEST_FAIL("heap %u: %s", h->id, wrong);
}
__attribute__((unused)) static void verify_all(void) {
    for (qy_heap_t *h = qy_heap_first(); h; h = h->next) verify(h);
}

// What the heaps' depots hold is counted only about, until it is at home.
__attribute__((unused)) static void depots_home(void) {
    for (qy_heap_t *h = qy_heap_first(); h; h = h->next) {
        qy_heap_lock(h);
        qy_depot_home(h);
        qy_heap_unlock(h);
    }
}

// Blocks of h's slabs that are neither at home nor on their way there.
__attribute__((unused)) static size_t blocks_out(qy_heap_t *h) {
    size_t n = 0;
    qy_heap_lock(h);
    for (qy_slab_t *s = h->all; s; s = s->all_next)
        if (s->kind == QY_SPAN_SLAB)
            n += s->ncarved - (s->cls == QY_CLASS_TINY ? qy_tiny_free_blocks(s) : qy_slab_home(s) + remote_count(s));
    qy_heap_unlock(h);
    return n;
}

// The equation of include/quarry/stats.h. Exact while no other thread allocates or frees.
__attribute__((unused)) static quarry_stats_t stats_add_up(void) {
    quarry_stats_t st;
    quarry_stats_read(&st);
    CHECK_EQ(st.mapped_bytes, st.live_bytes + st.cached_bytes + st.slab_free_bytes + st.slab_fresh_bytes +
                                  st.run_slack_bytes +
                                  st.pages_dirty_bytes + st.pages_clean_bytes);
    CHECK_LE(st.slab_purged_bytes, st.slab_free_bytes);
    CHECK_LE(st.heaps_idle, st.heaps);
    return st;
}

// A byte of the pattern that belongs to an id.
__attribute__((unused)) static unsigned char pattern(uint64_t id, size_t i) {
    return (unsigned char)((id * 0x9E3779B97F4A7C15u >> 33) + i * 7);
}
__attribute__((unused)) static void fill(void *p, size_t from, size_t n, uint64_t id) {
    for (size_t i = from; i < n; i++) ((unsigned char *)p)[i] = pattern(id, i);
}
__attribute__((unused)) static void check_filled(const void *p, size_t from, size_t n, uint64_t id) {
    for (size_t i = from; i < n; i++)
        if (((const unsigned char *)p)[i] != pattern(id, i))
            TEST_FAIL("block %llu at %p has changed at byte %zu of %zu", (unsigned long long)id, p, i, n);
}
__attribute__((unused)) static bool is_zero(const void *p, size_t n) {
    const unsigned char *c = p;
    for (; n >= 8; c += 8, n -= 8) {
        uint64_t word;
        memcpy(&word, c, sizeof word);
        if (word) return false;
    }
    while (n--)
        if (*c++) return false;
    return true;
}

// Pages of [p, p + n) that take memory.
__attribute__((unused)) static size_t resident(const void *p, size_t n) {
    unsigned char vec[1024];
    size_t page = qy_os_page_size(), count = 0;
    for (size_t at = 0; at < n; at += sizeof vec * page) {
        size_t pages = (qy_min(n - at, sizeof vec * page) + page - 1) / page;
        CHECK_EQ(mincore((char *)(uintptr_t)p + at, pages * page, vec), 0);
        for (size_t i = 0; i < pages; i++) count += vec[i] & 1;
    }
    return count;
}
__attribute__((unused)) static bool is_mapped(const void *p) {
    unsigned char vec[1];
    return mincore((void *)qy_round_down((uintptr_t)p, qy_os_page_size()), 1, vec) == 0;
}

// A child that must end with one line that has `words` in it, and SIGABRT.
__attribute__((unused)) static void must_die(void (*body)(void *arg), void *arg, const char *words) {
    captured_t c = capture(body, arg);
    if (c.exit_signal != SIGABRT || !strstr(c.text, words))
        TEST_FAIL("wanted \"%s\", got code %d signal %d: %.300s", words, c.exit_code, c.exit_signal, c.text);
}

// As in a round of the purge.
static inline size_t purge_units(uint32_t epoch, uint32_t age, size_t keep, size_t budget) {
    qy_lock_take(qy_purging_lock());
    size_t bytes = qy_units_purge(epoch, age, keep, budget);
    qy_lock_drop(qy_purging_lock());
    return bytes;
}
static inline size_t purge_slab(qy_heap_t *h, qy_slab_t *s) {
    CHECK(qy_lock_try(qy_purging_lock()));  // the heap's lock is held, which ranks behind it
    size_t bytes = qy_slab_purge(h, s);
    qy_lock_drop(qy_purging_lock());
    return bytes;
}

#endif
