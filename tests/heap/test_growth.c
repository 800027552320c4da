// SPDX-License-Identifier: MIT
// Before the page layer has more pages than ever, free ones go back instead: as many as come, some of them a second,
// and none where that would not lower the peak. And some when most of them are free.
#include <quarry/malloc.h>

#include "heap/purge.h"
#include "os/fake.h"
#include "os/os.h"
#include "pages/chunk.h"
#include "pages/chunk_state.h"
#include "pages/purging.h"
#include "heap_test.h"

#define RATE ((size_t)6 << 20)
#define AT_ONCE (HOLES * SPACING * QY_UNIT / 32)  // where there are all holes, at least
#define STEP ((size_t)256 << 10)
#define NOW UINT64_C(1000000000000)

enum { HOLES = 256,
    HOLE = 8,  // units: 128 KiB
    SPACING = 16 };

static qy_units_t wall[HOLES], more[HOLES];

// So many holes of touched units between units in use: no longer run fits into one.
static void make_holes(int holes) {
    if (qy_os_thp_always())
        TEST_SKIP("needs huge pages that are not always on (/sys/kernel/mm/transparent_hugepage/enabled)");
    quarry_trim(0);
    purge_units(0, 0, 0, SIZE_MAX);
    qy_units_release();
    qy_purging_of_growth.spent_until = 0;  // nothing was spent before,
    qy_os_fake_now = NOW;                  // and nothing is earned from here on
    for (int i = 0; i < holes; i++) {
        CHECK(qy_units_take(SPACING, SPACING, &wall[i]));
        memset(wall[i].chunk->record.base + wall[i].first * QY_UNIT, 1, SPACING * QY_UNIT);
    }
    for (int i = 0; i < holes; i++) qy_units_give(wall[i].chunk, wall[i].first, HOLE, qy_bits_run(0, HOLE));
    qy_units.most_touched = qy_units_touched_bytes();
}
static void remove_all(int holes, int taken) {
    for (int i = 0; i < holes; i++)
        qy_units_give(wall[i].chunk, wall[i].first + HOLE, SPACING - HOLE, qy_bits_run(0, SPACING - HOLE));
    for (int i = 0; i < taken; i++) qy_units_give(more[i].chunk, more[i].first, SPACING, qy_bits_run(0, SPACING));
    purge_units(0, 0, 0, SIZE_MAX);
    qy_units_release();
    verify_all();
}
static void take(int i) {
    CHECK(qy_units_take(SPACING, SPACING, &more[i]));
    memset(more[i].chunk->record.base + more[i].first * QY_UNIT, 2, SPACING * QY_UNIT);
}

TEST(as_many_go_as_come) {
    make_holes(HOLES);
    size_t before = qy_units_touched_bytes();
    int taken = 0;
    for (; taken < 3; taken++) {
        take(taken);
        CHECK_LE(qy_units_touched_bytes(), before);
    }
    // What is in use has kept its bytes, and the units that went are clean.
    for (int i = 0; i < HOLES; i++)
        for (unsigned u = HOLE; u < SPACING; u++)
            CHECK_EQ(wall[i].chunk->record.base[(wall[i].first + u) * QY_UNIT], 1);
    for (int i = 0; i < HOLES; i++)
        for (unsigned u = 0; u < HOLE; u++)
            if (!(wall[i].chunk->dirty >> (wall[i].first + u) & 1))
                CHECK_EQ(wall[i].chunk->record.base[(wall[i].first + u) * QY_UNIT], 0);
    // What may go has gone: it grows.
    for (int i = 0; i < 16; i++) take(taken++);
    CHECK_GT(qy_units_touched_bytes(), before);
    CHECK_EQ(qy_units.most_touched, qy_units_touched_bytes());
    remove_all(HOLES, taken);
}

// A machine that has just started: its clock says less than what a burst costs.
TEST(the_clock_is_young) {
    if (qy_os_thp_always())
        TEST_SKIP("needs huge pages that are not always on (/sys/kernel/mm/transparent_hugepage/enabled)");
    const size_t all = (size_t)1 << 30;
    qy_purging_of_growth.spent_until = qy_purging_of_runs.spent_until = 0;
    for (int later = 0; later < 2; later++) {
        qy_os_fake_now = later ? NOW : 1000000;
        CHECK_EQ(qy_purging_may(QY_PURGING_GROWTH, STEP, all), STEP);
        CHECK_EQ(qy_purging_may(QY_PURGING_RUN_OLD, STEP, all), STEP);
    }
}

// A small heap gives back little at once.
TEST(little_of_little) {
    make_holes(16);
    size_t dirty = qy_units_dirty_bytes();
    for (int i = 0; i < 4; i++) take(i);
    size_t went = dirty - qy_units_dirty_bytes();
    CHECK_GE(went, STEP);
    CHECK_LE(went, 2 * STEP);
    remove_all(16, 4);
}

TEST(none_below_what_there_was) {
    make_holes(16);
    qy_units.most_touched += 8 * SPACING * QY_UNIT;
    size_t dirty = qy_units_dirty_bytes();
    for (int i = 0; i < 8; i++) take(i);
    CHECK_EQ(qy_units_dirty_bytes(), dirty);
    take(8);
    CHECK_LT(qy_units_dirty_bytes(), dirty);
    remove_all(16, 9);
}

TEST(so_much_a_second) {
    make_holes(HOLES);
    size_t dirty = qy_units_dirty_bytes();
    CHECK_GE(dirty, 4 * RATE);
    for (int i = 0; i < HOLES / 4; i++) take(i);
    size_t went = dirty - qy_units_dirty_bytes();
    CHECK_GE(went, AT_ONCE - STEP);
    CHECK_LE(went, AT_ONCE + STEP);
    qy_os_fake_now = NOW + 100000000;
    for (int i = HOLES / 4; i < HOLES / 2; i++) take(i);
    went = dirty - qy_units_dirty_bytes() - went;
    CHECK_GE(went, RATE / 10 - STEP);
    CHECK_LE(went, RATE / 10 + STEP);
    remove_all(HOLES, HOLES / 2);
}

// One run may have as much go as it brings; then nothing goes for some time.
TEST(a_large_run) {
    enum { UNITS = 12 * QY_CHUNK_UNITS };
    make_holes(HOLES);
    size_t dirty = qy_units_dirty_bytes();
    qy_chunk_t *chunk;
    bool touched_before;
    CHECK(qy_units_take_long(UNITS, &chunk, &touched_before));
    size_t left = qy_units_dirty_bytes();
    CHECK_GE(dirty - left, UNITS * QY_UNIT - STEP);
    CHECK_LE(dirty - left, UNITS * QY_UNIT + STEP);
    for (int i = 0; i < 8; i++) take(i);
    CHECK_EQ(qy_units_dirty_bytes(), left);
    qy_units_give_long(chunk, 0, UNITS, false);
    remove_all(HOLES, 8);
}

TEST(not_where_nothing_may_go_back) {
    make_holes(16);
    size_t dirty = qy_units_dirty_bytes();
    qy_opts.purge = false;
    take(0);
    CHECK_EQ(qy_units_dirty_bytes(), dirty);
    qy_opts.purge = true;
    remove_all(16, 1);
}

// What the kernel denies is not tried again at once.
TEST(denied) {
    make_holes(16);
    size_t dirty = qy_units_dirty_bytes();
    quarry_os_fault(1, 1, FAULT(PURGE));
    for (int i = 0; i < 4; i++) take(i);
    CHECK_LE(quarry_os_fault_calls(), 16);  // once each hole
    CHECK_EQ(qy_units_dirty_bytes(), dirty);
    quarry_os_fault(0, 0, 0);
    remove_all(16, 4);
}

TEST_MAIN()
