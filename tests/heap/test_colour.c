// SPDX-License-Identifier: MIT
// Blocks of more than 8 KiB and runs do not all begin on a page (sizeclass.h, "Colours").
#include "heap_test.h"

#define PAGE 4096u

static size_t in_page(const void *p) { return (uintptr_t)p % PAGE; }

// A program's own header, and behind it what is copied from a block without one, of the same class or of one of 2^k
// bytes. It can come out like that, but no size or header makes it the rule.
TEST(a_copy_behind_a_header_is_seldom_just_ahead_of_its_source) {
    static const size_t sizes[] = {
        9000, 12000, 16384, 20000, 32768, 40000, 50000, 65536, 70000, 131072, 262144, 524288, 600000};
    unsigned all = 0, slow = 0;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        for (size_t header = 8; header < 64; header += 8) {
            char *p[40];
            unsigned here = 0;
            for (int i = 0; i < 40; i += 2) {
                CHECK((p[i] = quarry_malloc(sizes[k])) && (p[i + 1] = quarry_malloc(sizes[k] + header)));
                size_t ahead = (in_page(p[i + 1]) + header - in_page(p[i])) % PAGE;
                here += ahead > 0 && ahead < QY_CACHE_LINE;
            }
            CHECK_LE(here, 10);  // of 20; in three hundred runs it was five at most
            all += 20;
            slow += here;
            for (int i = 0; i < 40; i++) quarry_free(p[i]);
        }
    }
    CHECK_LE(slow, all / 20);
}

// How many runs it takes until all sixteen were seen depends on where the system put the heap: mostly fewer than 64; in
// sixty thousand places, with gaps between the runs and without, 175 at most, and twelve colours at least among the
// first 64.
TEST(runs_of_one_size_have_sixteen_colours) {
    enum { FEW = 64,
        MOST = 400 };
    char *p[MOST];
    unsigned seen = 0;
    int n = 0;
    while (n < FEW || seen != 0xFFFF) {
        CHECK_LT(n, MOST);
        CHECK((p[n] = quarry_malloc(70000)) != NULL);
        qy_object_t o = qy_lookup(p[n]);
        CHECK_EQ(o.kind, QY_OBJECT_RUN);
        CHECK_GE(o.usable, 70000);
        CHECK_LE(p[n] + o.usable, o.slab->base + o.slab->units * QY_UNIT);
        CHECK_EQ(o.slab->units, 5);
        CHECK_EQ((uintptr_t)p[n] % QY_CACHE_LINE, 0);
        CHECK_GT(in_page(p[n]), QY_COLOUR_MAX);
        seen |= 1u << ((in_page(p[n]) - QY_COLOUR_MAX) / QY_CACHE_LINE - 1);
        memset(p[n], n, o.usable);
        for (size_t at = 0; at < o.usable; at += 777)
            if (at) CHECK_EQ(qy_lookup(p[n] + at).kind, QY_OBJECT_INTERIOR);
        CHECK_EQ(qy_lookup(o.slab->base).kind, QY_OBJECT_INTERIOR);
        if (++n == FEW) CHECK_GE(__builtin_popcount(seen), 10);
    }
    for (int i = 0; i < n; i++) {
        for (size_t at = 0; at < 70000; at++) CHECK_EQ(p[i][at], (char)i);
        quarry_free(p[i]);
        CHECK_EQ(qy_lookup(p[i]).kind, QY_OBJECT_FREE);
    }
}

// What leaves no room for it, asks for more than a line, or moves by pages has none.
TEST(runs_without_a_colour) {
    static const size_t sizes[] = {5 * QY_UNIT, 5 * QY_UNIT - 2 * QY_COLOUR_MAX + 1, QY_RUN_MAX, QY_RUN_MAX + 5};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *p = quarry_malloc(sizes[i]);
        CHECK_EQ(in_page(p), 0);
        quarry_free(p);
    }
    for (size_t align = 16; align <= QY_RUN_MAX; align *= 2)
        for (size_t n = 10000; n < 200000; n += 7777) {
            char *p = quarry_aligned_alloc(align, n);
            CHECK_EQ((uintptr_t)p % align, 0);
            CHECK_GE(quarry_usable_size(p), n);
            memset(p, 1, n);
            quarry_free(p);
        }
}

TEST(a_coloured_run_grows_and_shrinks) {
    for (size_t from = 70000; from < QY_RUN_MAX; from = from * 3 / 2) {
        char *p = quarry_malloc(from);
        memset(p, 3, from);
        size_t kept = from;
        for (size_t n = from; n < 6 * QY_RUN_MAX; n += n / 7) {
            CHECK((p = quarry_realloc(p, n)) != NULL);
            CHECK_GE(quarry_usable_size(p), n);
            memset(p + kept, 3, n - kept);
            kept = n;
        }
        while (kept > 20000) {
            kept -= kept / 5;
            CHECK((p = quarry_realloc(p, kept)) != NULL);
            CHECK_GE(quarry_usable_size(p), kept);
        }
        for (size_t i = 0; i < kept; i++) CHECK_EQ(p[i], 3);
        quarry_free(p);
    }
}

// One that grows in place beyond what has a colour loses it. Then it has to go elsewhere, by its pages.
static void grows_beyond(bool denied) {
    enum { TRIES = 20,
        HAD = 1500000,
        WANTED = 40 << 20 };
    char *p[TRIES], *grown;
    qy_object_t o;
    int n = 0;
    do {
        CHECK_LT(n, TRIES);
        CHECK((p[n] = quarry_malloc(700000)) != NULL);
        o = qy_lookup(p[n++]);
        CHECK(o.slab->origin > o.slab->base);
        fill(p[n - 1], 0, 700000, 7);
    } while (!(grown = qy_run_resize(o.chunk, o.slab, HAD)));
    CHECK(grown == o.slab->base && grown < p[--n]);
    check_filled(grown, 0, 700000, 7);
    while (n) quarry_free(p[--n]);
    fill(grown, 0, HAD, 7);
    quarry_os_fault(denied ? 1 : UINT64_MAX, denied, FAULT(MOVE));
    char *q = quarry_realloc(grown, WANTED);
    CHECK_GT(quarry_os_fault_calls(), 0);
    quarry_os_fault(0, 0, 0);
    CHECK(q != NULL);
    CHECK_EQ(in_page(q), 0);
    check_filled(q, 0, HAD, 7);
    fill(q, HAD, WANTED, 8);
    check_filled(q, HAD, WANTED, 8);
    CHECK_EQ(qy_lookup(q).kind, denied && qy_huge_comes_again() ? QY_OBJECT_RUN : QY_OBJECT_HUGE);
    quarry_free(q);
}
TEST(a_coloured_run_moves_by_its_pages) {
    grows_beyond(false);
    grows_beyond(true);
}

// What fits a limit without colours fits it.
TEST(a_limit_is_as_wide_as_without) {
    quarry_heap_t *h = quarry_heap_create(&(quarry_heap_options_t){.limit = 8 * QY_UNIT});
    char *p = quarry_heap_alloc(h, 100000);
    CHECK(p);
    memset(p, 5, 100000);
    CHECK((p = quarry_heap_realloc(h, p, 8 * QY_UNIT)) != NULL);
    for (int i = 0; i < 100000; i++) CHECK_EQ(p[i], 5);
    quarry_heap_destroy(h);
    for (size_t n = 2 * QY_UNIT + 1; n <= 3 * QY_UNIT; n += 1000) {
        h = quarry_heap_create(&(quarry_heap_options_t){.limit = 3 * QY_UNIT});
        CHECK((p = quarry_heap_alloc(h, n)) != NULL);
        CHECK_GE(quarry_usable_size(p), n);
        memset(p, 6, n);
        CHECK(!quarry_heap_alloc(h, n));
        CHECK_EQ(quarry_heap_check(h), 0);
        quarry_heap_free(h, p);
        CHECK((p = quarry_heap_alloc(h, n)) != NULL);
        quarry_heap_destroy(h);
    }
}

// Of the classes beyond 8 KiB only those of 2^k are aligned to more than a line.
TEST(aligned_blocks_are_no_larger_than_a_run) {
    for (size_t align = 128; align <= 16384; align *= 2)
        for (size_t n = 33000; n <= 3 * QY_UNIT; n += 999) {
            char *p = quarry_aligned_alloc(align, n);
            CHECK_EQ((uintptr_t)p % align, 0);
            CHECK_LE(quarry_usable_size(p), 3 * QY_UNIT);
            memset(p, 1, n);
            CHECK((p = quarry_realloc(p, n / 3)) != NULL);
            quarry_free(p);
        }
}

static int note(void *block, size_t usable, void *arg) {
    void **seen = arg;
    if (usable >= 70000) *seen = block;
    return 0;
}

TEST(a_walk_finds_the_object) {
    quarry_heap_t *h = quarry_heap_create(&(quarry_heap_options_t){.name = "colours"});
    void *p = quarry_heap_alloc(h, 70000), *seen = NULL;
    CHECK_GT(in_page(p), 0);
    CHECK_EQ(quarry_heap_walk(h, note, &seen), 0);
    CHECK_PTR_EQ(seen, p);
    CHECK((p = quarry_heap_realloc(h, p, 300000)) != NULL);
    CHECK_GE(quarry_usable_size(p), 300000);
    quarry_free(p);
    quarry_heap_destroy(h);
}

TEST_MAIN()
