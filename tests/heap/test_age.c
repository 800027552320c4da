// SPDX-License-Identifier: MIT
// How long free memory waits: longer after it was given back and needed again soon, less after it was not.
#include "pages/age.h"
#include "pages/purging.h"

#include "heap_test.h"

#define MIB ((size_t)1 << 20)

static void watched_time_passes(void) { qy_os_fake_now += qy_opts.purge_delay * 1000000 * 17; }

static void as_short_as_can_be(void) {
    qy_opts.purge_delay = 10;
    if (!qy_os_fake_now) qy_os_fake_now = qy_os_now_ns();  // from here on time passes where it says so
    for (int i = 0; i < 8; i++) {
        qy_age_given(MIB);
        watched_time_passes();
        qy_age_given(0);
    }
    qy_age_taken();
    qy_age_given(0);  // it does not rest
    CHECK_EQ(qy_age(), QY_AGE_LEAST);
}

TEST(needed_again) {
    as_short_as_can_be();
    qy_opts.purge_delay = 10000;  // what follows is soon
    qy_age_taken();
    qy_age_given(MIB);
    qy_age_again(MIB / 4);
    CHECK_EQ(qy_age(), QY_AGE_LEAST);
    qy_age_taken();
    qy_age_given(MIB);  // belongs to the same watch: half of two
    qy_age_again(MIB / 2);
    CHECK_EQ(qy_age(), QY_AGE_LEAST);
    qy_age_again(MIB / 4);
    CHECK_EQ(qy_age(), 4 * QY_AGE_LEAST);
    qy_age_again(10 * MIB);  // nothing was given meanwhile
    CHECK_EQ(qy_age(), 4 * QY_AGE_LEAST);
    qy_age_taken();
    qy_age_given(MIB);
    qy_age_again(MIB);
    CHECK_EQ(qy_age(), 8 * QY_AGE_LEAST);
    qy_age_taken();
    qy_age_given(MIB);
    qy_age_again(MIB);
    CHECK_EQ(qy_age(), 8 * QY_AGE_LEAST);
}

TEST(not_needed_again) {
    as_short_as_can_be();
    qy_opts.purge_delay = 10000;
    for (int i = 0; i < 2; i++) {
        qy_age_given(MIB);
        qy_age_again(MIB);
    }
    qy_opts.purge_delay = 10;
    for (uint32_t times = 8; times > 1; times /= 2) {
        qy_age_taken();
        CHECK_EQ(qy_age(), times * QY_AGE_LEAST);
        qy_age_given(MIB);
        qy_age_given(0);
        CHECK_EQ(qy_age(), times * QY_AGE_LEAST);  // too early to say
        watched_time_passes();
        // Needed again, but late.
        if (times == 4) qy_age_again(MIB);
        else qy_age_given(0);
    }
    CHECK_EQ(qy_age(), QY_AGE_LEAST);
}

TEST(rests) {
    as_short_as_can_be();
    qy_opts.purge_delay = 10000;
    for (int i = 0; i < 2; i++) {
        qy_age_given(MIB);
        qy_age_again(MIB);
    }
    qy_age_taken();
    for (unsigned i = 0; i <= QY_AGE_RESTS; i++) {  // the first one finds what was taken
        CHECK_EQ(qy_age(), 8 * QY_AGE_LEAST);
        qy_age_given(0);
    }
    CHECK_EQ(qy_age(), QY_AGE_LEAST);
    qy_age_given(0);
    CHECK_EQ(qy_age(), QY_AGE_LEAST);
    // It works again, and what was learned is not forgotten.
    void *p = quarry_malloc(MIB / 4);
    CHECK(p);
    qy_age_given(0);
    CHECK_EQ(qy_age(), 8 * QY_AGE_LEAST);
    quarry_free(p);
    qy_opts.purge_delay = 10;
}

TEST(little_says_nothing) {
    as_short_as_can_be();
    qy_opts.purge_delay = 10000;
    qy_age_given(1000);
    qy_age_again(MIB);
    CHECK_EQ(qy_age(), QY_AGE_LEAST);
}

// What was asked for says nothing of how long to wait.
TEST(given_on_demand) {
    as_short_as_can_be();
    qy_opts.purge_delay = 600000;
    for (int i = 0; i < 3; i++) {
        void *p = quarry_malloc(20 * MIB);
        CHECK(p);
        memset(p, 1, 20 * MIB);
        quarry_free(p);
        qy_age_given(MIB);
        quarry_trim(0);
    }
    CHECK_EQ(qy_age(), QY_AGE_LEAST);
    qy_opts.purge_delay = 10;
    watched_time_passes();
    qy_age_given(0);
}

// ---- a program that works every now and then ------------------------------------------------------

enum { N = 2000 };
static void *block[N];

// 20 MiB in runs, 8 MiB in slabs.
static void work(void) {
    for (int i = 0; i < N; i++) {
        size_t n = i % 20 ? 4096 : 200000;
        CHECK(block[i] = quarry_malloc(n));
        memset(block[i], i, n);
    }
    for (int i = 0; i < N; i++) quarry_free(block[i]);
}

static size_t given(void) {
    size_t bytes;
    qy_purging_counted(&bytes);
    return bytes;
}

// Works, waits until most of it has gone back, again and again.
static void in_turns(void *thread) {
    as_short_as_can_be();
    qy_os_fake_now = 0;
    qy_opts.purge = true;
    qy_opts.purge_thread = *(bool *)thread;
    // It works for a sixteenth of the time that is watched: also where the machine is slow, or shared.
    uint64_t begin = qy_os_now_ns();
    work();
    qy_opts.purge_delay = qy_max(20, (qy_os_now_ns() - begin) / 1000000);
    uint32_t most = 0;
    for (int turn = 0; turn < 40 && most < 8 * QY_AGE_LEAST; turn++) {
        size_t before = given();
        work();
        for (uint64_t i = 0; i < 100 * qy_opts.purge_delay && given() < before + 16 * MIB; i++) {
            usleep(1000);
            quarry_free(quarry_malloc(100000));  // without a thread somebody has to come by
        }
        most = qy_max(most, qy_age());
    }
    CHECK_EQ(most, 8 * QY_AGE_LEAST);
    // Now it is done, and what is free goes back all the same, but for what is too little to look for (WASTE_MIN in purge.c): lists of
    // the thread's that stay idle come home later, and their slabs are free then.
    for (int i = 0; i < 20000 && qy_units_dirty_bytes() > 4 * MIB; i++) {
        usleep(1000);
        quarry_free(quarry_malloc(100000));
    }
    CHECK_LE(qy_units_dirty_bytes(), 4 * MIB);
    verify_all();
}

TEST(by_the_thread) {
    static bool yes = true;
    if (QY_ASAN || QY_TSAN) TEST_SKIP("no bare threads under sanitizers");
    run_apart(in_turns, &yes);
}
TEST(without_a_thread) {
    static bool no = false;
    run_apart(in_turns, &no);
}

TEST_MAIN()
