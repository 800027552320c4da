// SPDX-License-Identifier: MIT
// The tables of sizeclass.h against their definition, exhaustively: there are few enough sizes.
#include "heap_test.h"

#include "heap/alloc.h"
#include "heap/free_fast.h"

static void fine_table(uint8_t cls[QY_STEP_COUNT]) {
    for (unsigned i = 0; i < QY_STEP_COUNT; i++) cls[i] = (uint8_t)qy_class_of_step(i);
}
// The next smaller class of those that are not learned; there is one for 8 bytes between these (test_tiny.c).
static unsigned before(unsigned c) { return c == QY_CLASS_SLAB_64K + 1 ? QY_CLASS_LEARNED - 1 : c - 1; }

TEST(sizes_rise) {
    CHECK_EQ(qy_class_size[0], 0);
    for (unsigned c = 1; c <= QY_CLASS_SMALL; c++) CHECK_EQ(qy_class_size[c], c * 16);
    CHECK_EQ(qy_class_size[QY_CLASS_TINY], QY_TINY);
    for (unsigned c = 1; c < QY_CLASS_COUNT; c++) {
        if (c == QY_CLASS_TINY) continue;
        // What is not learned yet is as if of the largest size there.
        if (qy_class_is_learned(c)) CHECK_EQ(qy_class_size[c], QY_SLAB_64K_MAX);
        else CHECK_LT(qy_class_size[before(c)], qy_class_size[c]);
        CHECK_EQ(qy_class_size[c] % QY_ALIGN_MIN, 0);
    }
    CHECK_EQ(qy_class_size[QY_CLASS_COUNT - 1], QY_MEDIUM_MAX);
    CHECK_EQ(qy_class_size[QY_CLASS_TINY - 1], 8192);
    CHECK_EQ(qy_class_size[QY_CLASS_SMALL], QY_SMALL_MAX);
}

TEST(every_size_has_the_least_class) {
    for (size_t n = 1; n <= QY_MEDIUM_MAX; n++) {
        unsigned c = qy_class_fine(n);
        CHECK_GE(c, 1);
        CHECK_LT(c, QY_CLASS_COUNT);
        CHECK_GE(qy_class_most(c), n);
        CHECK_LT(qy_class_most(before(c)), n);
        CHECK(!qy_class_is_learned(c));
        // The step it is looked up by.
        unsigned step = qy_step(n);
        CHECK_LT(step, QY_STEP_COUNT);
        CHECK_GE(qy_step_size(step), n);
        CHECK_LT(qy_step_size(step - 1), n);
        CHECK_EQ(qy_step_size(step) % (n <= QY_SMALL_MAX ? QY_ALIGN_MIN : 8), 0);
        CHECK_GE(qy_class_size[c], qy_step_size(step));
        if (n > QY_SMALL_MAX) CHECK_EQ(qy_step_medium(n), step);
        size_t waste = qy_class_most(c) - n;
        if (n <= QY_SMALL_MAX) CHECK_LT(waste, 16);
        else CHECK_LT(waste * 8, n);
    }
}

TEST(above_the_largest_there_is_none) {
    uint8_t cls[QY_STEP_COUNT];
    qy_class_coarse(cls);
    for (size_t n = QY_MEDIUM_MAX + 1; n <= 70000; n++) CHECK_EQ(qy_class_aligned(cls, QY_ALIGN_MIN, n), 0);
    CHECK_EQ(qy_class_aligned(cls, 2 * QY_MEDIUM_MAX, 16), 0);
    CHECK_EQ(cls[0], 0);  // size 0 and sizes that wrap: no class, always the slow path
}

TEST(coarse_set_is_nested_and_rises) {
    uint8_t cls[QY_STEP_COUNT];
    qy_class_coarse(cls);
    unsigned classes = 0;
    for (unsigned i = 1; i < QY_STEP_COUNT; i++) {
        CHECK_GE(cls[i], qy_class_of_step(i));
        CHECK_LT(cls[i], QY_CLASS_COUNT);
        CHECK_GE(cls[i], cls[i - 1]);
        unsigned top = qy_step(qy_class_most(cls[i]));
        CHECK_EQ(cls[top], cls[i]);  // a class of the coarse set is its own
        // Of small sizes at most a quarter of what was asked for is waste, of medium ones half of it.
        size_t least = qy_step_size(i - 1) + 1, waste = qy_class_most(cls[i]) - least;
        if (i <= 8) CHECK_EQ(cls[i], i);
        else CHECK_LT(waste * (i <= QY_CLASS_SMALL ? 4 : 2), least + (i <= QY_CLASS_SMALL ? 4 * QY_ALIGN_MIN : 0));
        classes += top == i;
    }
    CHECK_EQ(cls[QY_CLASS_SMALL], QY_CLASS_SMALL);
    CHECK_EQ(classes, 8 + 3 * 4 + 6 * 2);
}

// By brute force: the least class of the table that is large enough and a multiple of the alignment, if a run is not
// less.
static unsigned aligned_by_search(const uint8_t *cls, size_t align, size_t n) {
    if (align > 64 && n > 32768 && n <= 49152) return 0;
    for (unsigned c = 1; c < QY_CLASS_COUNT; c++) {
        if (c == QY_CLASS_TINY || qy_class_is_learned(c) || cls[qy_step(qy_class_most(c))] != c) continue;
        if (qy_class_most(c) >= n && qy_class_size[c] % align == 0 && (align <= 64 || !qy_class_is_coloured(c)))
            return c;
    }
    return 0;
}

TEST(aligned_class) {
    for (int fine = 0; fine < 2; fine++) {
        uint8_t cls[QY_STEP_COUNT];
        if (fine) fine_table(cls);
        else qy_class_coarse(cls);
        for (size_t align = 1; align <= QY_MEDIUM_MAX; align *= 2)
            for (size_t n = 1; n <= QY_MEDIUM_MAX; n += n < 2100 ? 1 : 61)
                CHECK_EQ(qy_class_aligned(cls, align, n), aligned_by_search(cls, align, n));
    }
}

TEST(block_start_test_is_exact) {
    for (unsigned c = 1; c < QY_CLASS_TINY; c++) {
        size_t size = qy_class_size[c];
        for (size_t offset = 0; offset < 65536; offset++)
            if (qy_class_is_start(c, offset) != (offset % size == 0)) TEST_FAIL("class %u, offset %zu", c, offset);
    }
    for (unsigned c = QY_CLASS_SLAB_64K + 1; c < QY_CLASS_COUNT; c++) {
        size_t size = qy_class_size[c];
        for (size_t offset = 0; offset < 262144; offset += 16)
            if (qy_class_is_start(c, offset) != (offset % size == 0)) TEST_FAIL("class %u, offset %zu", c, offset);
    }
    // So that these fail the test for every offset.
    CHECK_EQ(qy_class_magic[0], 0);
    CHECK_EQ(qy_class_magic[QY_CLASS_TINY], 0);
}

// free() asks with one number for all classes, and takes one of the room in the same breath.
TEST(start_test_of_free_is_exact) {
    static qy_cache_t cache;
    cache.start_most = QY_START_MOST;
    cache.magic[0] = QY_START_NONE;
    for (unsigned c = 1; c < QY_CLASS_TINY; c++) cache.magic[c] = qy_class_magic[c];
    for (unsigned c = 0; c < QY_CLASS_TINY; c++) {
        size_t size = c ? qy_class_size[c] : 65536;
        for (size_t offset = 0; offset < 65536; offset++) {
            const void *p = (const void *)(uintptr_t)(UINT64_C(0x7fff12340000) + offset);
            bool is_start = offset % size == 0;
            for (uint8_t room = 2; room; room--) {
                cache.room[c] = room;
                if (qy_is_rare(&cache, p, c) != (room == 1 || !is_start) || cache.room[c] != room - 1)
                    TEST_FAIL("class %u, offset %zu, room %u", c, offset, room);
            }
            if (qy_is_start(&cache, p, c) != is_start) TEST_FAIL("class %u, offset %zu", c, offset);
        }
    }
}

// Frames of 256 KiB: 16 of them have all colours.
#define FRAMES 16u

TEST(colours) {
    for (unsigned c = 1; c < QY_CLASS_COUNT; c++) {
        unsigned size = qy_class_size[c], seen = 0;
        CHECK_EQ(qy_class_is_coloured(c), c > QY_CLASS_SLAB_64K && (size & (size - 1)) != 0);
        CHECK_EQ(qy_class_most(c) % 1024 == 0, c > QY_CLASS_SLAB_64K || size % 1024 == 0);
        if (qy_class_is_coloured(c)) CHECK_EQ(size % 1024, QY_CLASS_EXTRA);
        for (uintptr_t f = 0; f < FRAMES; f++) {
            uintptr_t frame = 0x7f0000000000 + f * 0x40000;
            size_t colour = qy_class_colour(c, (void *)(frame + 5));
            if (!qy_class_is_coloured(c)) {
                CHECK_EQ(colour, 0);
                continue;
            }
            CHECK(colour >= QY_CACHE_LINE && colour <= QY_COLOUR_MAX && colour % QY_CACHE_LINE == 0);
            seen |= 1u << (colour / QY_CACHE_LINE - 1);
            // A frame is full of blocks, and nothing else in it is the start of one.
            size_t n = 0;
            for (uintptr_t p = frame; p + size <= frame + 0x40000; p += 16) {
                bool start = qy_class_is_start(c, qy_class_offset(c, (void *)p));
                if (start != (p >= frame + colour && (p - frame - colour) % size == 0))
                    TEST_FAIL("class %u, offset %zu", c, (size_t)(p - frame));
                n += start;
            }
            CHECK_EQ(n, (0x40000 - colour) / size);
        }
        CHECK_EQ(seen, qy_class_is_coloured(c) ? 0xFFFF : 0);
        // Two classes of which both have blocks in a frame have two colours.
        if (qy_class_is_coloured(c) && qy_class_is_coloured(c - 1))
            CHECK_NE(qy_class_colour(c, NULL), qy_class_colour(c - 1, NULL));
    }
}

TEST(limits_are_sane) {
    CHECK_EQ(qy_class_limit[0], 0);
    CHECK_EQ(qy_class_limit[QY_CLASS_TINY], 0);
    for (unsigned c = 1; c < QY_CLASS_COUNT; c++) {
        if (c == QY_CLASS_TINY) continue;
        size_t limit = qy_class_limit[c], size = qy_class_size[c], bytes = limit * size;
        bool small = c <= QY_CLASS_SMALL;
        CHECK_GE(limit, small ? 16 : 1);
        CHECK_LE(limit, small ? 127 : 16);
        // The budget is used up, unless a bound stands in the way, and not exceeded.
        size_t budget = small ? 16384 : 32768;
        if (limit > (small ? 16u : 1u)) CHECK_LE(bytes, budget);
        if (limit < (small ? 127u : 16u)) CHECK_GT(bytes + size, budget);
        if (c != 1 && c != QY_CLASS_SMALL + 1) CHECK_LE(limit, qy_class_limit[before(c)]);
    }
}

// Whole blocks of c in [from, to) of a frame, in the colour with the fewest.
static size_t fewest_blocks(unsigned c, size_t from, size_t to) {
    size_t fewest = SIZE_MAX, size = qy_class_size[c];
    for (uintptr_t f = 0; f < FRAMES; f++) {
        size_t n = 0;
        for (size_t at = qy_class_colour(c, (void *)(f * 0x40000)); at + size <= to; at += size) n += at >= from;
        fewest = n < fewest ? n : fewest;
    }
    return fewest;
}

TEST(slab_sizes) {
    for (unsigned c = 1; c < QY_CLASS_COUNT; c++) {
        size_t sum = 0, frame = c > QY_CLASS_SLAB_64K ? 262144 : 65536, size = qy_class_size[c];
        CHECK_EQ(qy_class_frame_units(c) * QY_UNIT, frame);
        for (unsigned n = 0; n < 2 * QY_SLABS_FIRST; n++) {
            unsigned units = qy_class_slab_units(c, n), places = qy_class_slab_places(c, units);
            size_t bytes = units * QY_UNIT;
            CHECK_EQ(qy_class_slabs_bytes(c, n), sum);
            sum += bytes;
            CHECK_LE(bytes / size, c == QY_CLASS_TINY ? 8192 : 4096);
            if (n >= QY_SLABS_FIRST || c == QY_CLASS_TINY) CHECK_EQ(bytes, frame);
            // No more than a quarter is left over, wherever it begins, and fewer units would leave more.
            else {
                CHECK_LT(bytes, frame);
                CHECK_GE(fewest_blocks(c, 0, bytes) * size * 4, bytes * 3);
                for (unsigned fewer = 1; fewer < units; fewer++)
                    CHECK_LT(fewest_blocks(c, 0, fewer * QY_UNIT) * size * 4, fewer * QY_UNIT * 3);
            }
            CHECK_EQ(places & 1, 1);
            size_t most = fewest_blocks(c, 0, bytes);
            for (unsigned u = 0; u < frame / QY_UNIT; u++) {
                size_t at = u * QY_UNIT;
                CHECK_EQ(places >> u & 1, at + bytes <= frame && fewest_blocks(c, at, at + bytes) >= most);
            }
        }
    }
}

TEST_MAIN()
