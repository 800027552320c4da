// SPDX-License-Identifier: MIT
// Blocks of more than 8 KiB and runs do not all begin on a page (sizeclass.h, "Colours").
#include "heap_test.h"

#define PAGE 4096u

static size_t in_page(const void *p) { return (uintptr_t)p % PAGE; }

// A program's own header, and behind it what is copied from a block without one, of the same class or of one of 2^k bytes. It can come
// out like that, but no size or header makes it the rule.
TEST(a_copy_behind_a_header_is_seldom_just_ahead_of_its_source) {
    static const size_t sizes[] = {9000, 12000, 16384, 20000, 32768, 40000, 50000, 65536, 70000, 131072, 262144, 524288, 600000};
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
            CHECK_LE(here, 5);
            all += 20;
            slow += here;
            for (int i = 0; i < 40; i++) quarry_free(p[i]);
        }
    }
    CHECK_LE(slow, all / 20);
}

TEST(runs_of_one_size_have_sixteen_colours) {
    enum { COUNT = 64 };
    char *p[COUNT];
    unsigned seen = 0;
    for (int i = 0; i < COUNT; i++) {
        CHECK((p[i] = quarry_malloc(70000)) != NULL);
        qy_object_t o = qy_lookup(p[i]);
        CHECK_EQ(o.kind, QY_OBJECT_RUN);
        CHECK_GE(o.usable, 70000);
        CHECK_LE(p[i] + o.usable, o.slab->base + o.slab->units * QY_UNIT);
        CHECK_EQ(o.slab->units, 5);
        CHECK_EQ((uintptr_t)p[i] % QY_CACHE_LINE, 0);
        CHECK_GT(in_page(p[i]), QY_COLOUR_MAX);
        seen |= 1u << ((in_page(p[i]) - QY_COLOUR_MAX) / QY_CACHE_LINE - 1);
        memset(p[i], i, o.usable);
        for (size_t at = 0; at < o.usable; at += 777)
            if (at) CHECK_EQ(qy_lookup(p[i] + at).kind, QY_OBJECT_INTERIOR);
        CHECK_EQ(qy_lookup(o.slab->base).kind, QY_OBJECT_INTERIOR);
    }
    CHECK_EQ(seen, 0xFFFF);
    for (int i = 0; i < COUNT; i++) {
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
