// SPDX-License-Identifier: MIT
// What one call does beside its own block is bounded: counted in blocks, slabs and calls to the kernel.
#include "heap/lists.h"

#include <pthread.h>

#include "heap_test.h"

static qy_heap_t *mine(void) { return qy_thread_get()->heap; }

// Free blocks at home, of all classes but one.
static size_t home_but(const qy_heap_t *h, unsigned but) {
    size_t n = 0;
    for (const qy_slab_t *s = h->all; s; s = s->all_next)
        if (s->kind == QY_SPAN_SLAB && s->cls != but) n += qy_slab_home(s);
    return n;
}

// Lists of classes that are used no longer go home while another one is, and no call brings home more than its share.
TEST(idle_lists_go_home_in_parts) {
    enum { SIZE = 16000,
        KINDS = 40,
        OF_EACH = 60,
        CALLS = 20000 };
    quarry_trim(0);
    qy_thread_t *t = qy_thread_get();
    static void *block[KINDS][OF_EACH], *p[8];
    for (int i = 0; i < 8; i++) CHECK(p[i] = quarry_malloc(SIZE));  // that no slab is made later
    for (int i = 0; i < 8; i++) quarry_free(p[i]);
    for (unsigned k = 0; k < KINDS; k++)
        for (int i = 0; i < OF_EACH; i++) CHECK(block[k][i] = quarry_malloc(16 * k + 16));
    for (unsigned k = 0; k < KINDS; k++)
        for (int i = 0; i < OF_EACH; i++) quarry_free(block[k][i]);
    depots_home();
    unsigned own = t->cache.cls[qy_step(SIZE)], full = 0;
    size_t calls = 0, left = KINDS, most = 0;
    while (left) {
        CHECK_LT(calls += 16, CALLS);
        for (int i = 0; i < 16; i++) {
            size_t before = home_but(t->heap, own);
            t->heap->made_bytes = 0;  // or lists go home at once before a slab is made, where time allows (slab_take.c)
            if (i < 8) CHECK(p[i] = quarry_malloc(SIZE));
            else quarry_free(p[i - 8]);
            size_t after = home_but(t->heap, own), home = after > before ? after - before : 0;
            CHECK_LE(home, QY_LISTS_SWEEP);
            most = qy_max(most, home);
            full += home == QY_LISTS_SWEEP;
        }
        left = 0;
        for (unsigned k = 0; k < KINDS; k++) left += !qy_lists_are_empty(t, t->cache.cls[qy_step(16 * k + 16)]);
    }
    CHECK_GT(full, KINDS);
    verify_all();
}

// No class serves a request that is smaller by more than a fifth, unless it is the heap's own class for it.
static bool serves(const qy_thread_t *t, const void *p, size_t n) {
    size_t own = qy_class_size[t->cache.cls[qy_step(n)]], is = qy_class_size[span_of(p)->cls];
    CHECK(is <= own || is <= n + n / 4);
    return is > own;
}

// A block of a larger class that is free comes before memory that was never touched.
TEST(larger_before_new) {
    enum { SIZE = 5000,
        LARGER = 5500,
        MUCH_LARGER = 8000,
        MANY = 400 };
    quarry_trim(0);
    qy_thread_t *t = qy_thread_get();
    static void *small[2 * MANY], *large[MANY], *larger[MANY];
    // The heap has classes of their own for these sizes once it has some of each.
    for (int i = 0; i < MANY; i++) {
        CHECK(small[i] = quarry_malloc(SIZE));
        CHECK(large[i] = quarry_malloc(LARGER));
        CHECK(larger[i] = quarry_malloc(MUCH_LARGER));
    }
    unsigned c = t->cache.cls[qy_step(SIZE)], d = t->cache.cls[qy_step(LARGER)];
    CHECK_LT(qy_class_size[c], qy_class_size[d]);
    // No slab is empty, and no page is free that was touched.
    for (int i = 0; i < MANY; i += 2) {
        quarry_free(large[i]);
        quarry_free(larger[i]);
    }
    qy_thread_flush(t);
    purge_units(qy_purging_epoch(), 0, 0, SIZE_MAX);
    qy_heap_t *h = mine();
    size_t n = MANY, of_larger = 0, slabs = h->bins[c].nslabs;
    while (h->bins[c].nslabs == slabs && n < 2 * MANY) {
        CHECK(small[n] = quarry_malloc(SIZE));
        of_larger += serves(t, small[n++], SIZE);
    }
    CHECK_GT(of_larger, 20);
    // To be aligned, they are of a class of which all are.
    void *aligned = quarry_aligned_alloc(64, SIZE);
    CHECK(aligned);
    CHECK_EQ((uintptr_t)aligned % 64, 0);
    quarry_free(aligned);
    while (n) quarry_free(small[--n]);
    for (int i = 0; i < MANY; i++) {
        if (i % 2) quarry_free(large[i]);
        if (i % 2) quarry_free(larger[i]);
    }
    verify_all();
}

// Of all sizes, while some are freed and others come: no call asks the kernel more than a few times.
TEST(few_calls_to_the_kernel) {
    enum { LIVE = 3000,
        CALLS = 100000,
        MOST = 12 };
    static void *block[LIVE];
    uint64_t r = test_seed, before = 0, most = 0;
    qy_thread_t *t = qy_thread_get();
    uint32_t mask = FAULT(RESERVE) | FAULT(MAP) | FAULT(COMMIT) | FAULT(DECOMMIT) | FAULT(UNMAP) |
                    FAULT(PROTECT) | FAULT(POPULATE) | FAULT(ADVISE);
    quarry_os_fault(UINT64_MAX, 0, mask);
    for (int i = 0; i < CALLS; i++) {
        // Sizes grow and shrink again, so that classes become idle and slabs empty.
        size_t k = test_random(&r) % LIVE, n = (size_t)1 << (4 + i / 4096 % 12);
        quarry_free(block[k]);
        CHECK(block[k] = quarry_malloc(n = n + test_random(&r) % n));
        if (n <= QY_MEDIUM_MAX) serves(t, block[k], n);
        uint64_t now = quarry_os_fault_calls();
        most = qy_max(most, now - before);
        before = now;
    }
    quarry_os_fault(0, 0, 0);
    CHECK_GT(before, 100);
    CHECK_LE(most, MOST);
    for (int k = 0; k < LIVE; k++) quarry_free(block[k]);
    verify_all();
}

// ---- taken over ------------------------------------------------------------------------------------------

enum { HANDED = 8000 };
static void *handed[HANDED];

static void *leaves_blocks(void *unused) {
    (void)unused;
    for (int i = 0; i < HANDED; i++) CHECK(handed[i] = quarry_malloc(1000));
    for (int i = 0; i < HANDED; i += 2) quarry_free(handed[i]);
    return NULL;
}

// From an idle heap one slab comes with one call.
TEST(slabs_are_taken_over_one_by_one) {
    static void *block[HANDED / 2];
    quarry_free(quarry_malloc(1000));
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, leaves_blocks, NULL), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    qy_heap_t *h = mine();
    size_t steals = h->steals, begin = steals;
    for (int i = 0; i < HANDED / 2; i++) {
        CHECK(block[i] = quarry_malloc(1000));
        CHECK_LE(h->steals - steals, 1);
        steals = h->steals;
    }
    CHECK_GT(steals - begin, 50);
    for (int i = 0; i < HANDED / 2; i++) quarry_free(block[i]);
    for (int i = 1; i < HANDED; i += 2) quarry_free(handed[i]);
    verify_all();
}

TEST_MAIN()
