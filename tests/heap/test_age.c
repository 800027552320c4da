// SPDX-License-Identifier: MIT
// How long free memory waits: longer after it was given back and needed again soon, less after it was not.
#include "pages/purging.h"
#include "heap/helper.h"

#include "heap_test.h"

#define MIB ((size_t)1 << 20)

static void watched_time_passes(void) { qy_os_fake_now += qy_opts.purge_delay * 1000000 * 17; }

static void as_short_as_can_be(void) {
    qy_opts.purge_delay = 10;
    if (!qy_os_fake_now) qy_os_fake_now = qy_os_now_ns();  // from here on time passes where it says so
    for (int i = 0; i < 8; i++) {
        qy_age_released(MIB);
        watched_time_passes();
        qy_age_released(0);
    }
    qy_age_taken();
    qy_age_released(0);  // it does not rest
    CHECK_EQ(qy_age(), QY_AGE_LEAST);
}

TEST(needed_again) {
    as_short_as_can_be();
    qy_opts.purge_delay = 10000;  // what follows is soon
    qy_age_taken();
    qy_age_released(MIB);
    qy_age_again(MIB / 4);
    CHECK_EQ(qy_age(), QY_AGE_LEAST);
    qy_age_taken();
    qy_age_released(MIB);  // belongs to the same watch: half of two
    qy_age_again(MIB / 2);
    CHECK_EQ(qy_age(), QY_AGE_LEAST);
    qy_age_again(MIB / 4);
    CHECK_EQ(qy_age(), 4 * QY_AGE_LEAST);
    qy_age_again(10 * MIB);  // nothing was given meanwhile
    CHECK_EQ(qy_age(), 4 * QY_AGE_LEAST);
    qy_age_taken();
    qy_age_released(MIB);
    qy_age_again(MIB);
    CHECK_EQ(qy_age(), 8 * QY_AGE_LEAST);
    qy_age_taken();
    qy_age_released(MIB);
    qy_age_again(MIB);
    CHECK_EQ(qy_age(), 8 * QY_AGE_LEAST);
}

TEST(not_needed_again) {
    as_short_as_can_be();
    qy_opts.purge_delay = 10000;
    for (int i = 0; i < 2; i++) {
        qy_age_released(MIB);
        qy_age_again(MIB);
    }
    qy_opts.purge_delay = 10;
    for (uint32_t times = 8; times > 1; times /= 2) {
        qy_age_taken();
        CHECK_EQ(qy_age(), times * QY_AGE_LEAST);
        qy_age_released(MIB);
        qy_age_released(0);
        CHECK_EQ(qy_age(), times * QY_AGE_LEAST);  // too early to say
        watched_time_passes();
        // Needed again, but late.
        if (times == 4) qy_age_again(MIB);
        else qy_age_released(0);
    }
    CHECK_EQ(qy_age(), QY_AGE_LEAST);
}

TEST(rests) {
    as_short_as_can_be();
    qy_opts.purge_delay = 10000;
    for (int i = 0; i < 2; i++) {
        qy_age_released(MIB);
        qy_age_again(MIB);
    }
    qy_age_taken();
    for (unsigned i = 0; i <= QY_AGE_RESTS; i++) {  // the first one finds what was taken
        CHECK_EQ(qy_age(), 8 * QY_AGE_LEAST);
        qy_age_released(0);
    }
    CHECK_EQ(qy_age(), QY_AGE_LEAST);
    qy_age_released(0);
    CHECK_EQ(qy_age(), QY_AGE_LEAST);
    // It works again, and what was learned is not forgotten.
    void *p = quarry_malloc(MIB / 4);
    CHECK(p);
    qy_age_released(0);
    CHECK_EQ(qy_age(), 8 * QY_AGE_LEAST);
    quarry_free(p);
    qy_opts.purge_delay = 10;
}

TEST(little_says_nothing) {
    as_short_as_can_be();
    qy_opts.purge_delay = 10000;
    qy_age_released(1000);
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
        qy_age_released(MIB);
        quarry_trim(0);
    }
    CHECK_EQ(qy_age(), QY_AGE_LEAST);
    qy_opts.purge_delay = 10;
    watched_time_passes();
    qy_age_released(0);
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

// A millisecond passes. Without a thread somebody has to come by.
static bool pass(uint64_t ns) {
    usleep(1000);
    qy_os_fake_now += ns;
    quarry_free(quarry_malloc(100000));
    return true;
}

// Works, waits until most of it has gone back, again and again. While it works no time passes: also where the machine
// is slow, it needs soon again what it gave back. A thread counts epochs by itself, and then none passes at all.
static void in_turns(void *thread) {
    as_short_as_can_be();
    qy_opts.purge = true;
    qy_opts.purge_thread = *(bool *)thread;
    qy_opts.purge_delay = 20;
    qy_helper_at_once = true;  // no time passes in which a need for it could grow old
    uint32_t most = 0;
    for (int turn = 0; turn < 40 && most < 8 * QY_AGE_LEAST; turn++) {
        size_t before = given();
        work();
        TEST_AWAIT(pass(qy_opts.purge_thread ? 0 : 1000000) && given() >= before + 16 * MIB);
        most = qy_max(most, qy_age());
    }
    CHECK_EQ(most, 8 * QY_AGE_LEAST);
    // Now it is done, and what is free goes back all the same, but for what is too little to look for (WASTE_MIN in
    // purge.c): lists of the thread's that stay idle come home later, and their slabs are free then.
    TEST_AWAIT(pass(1000000) && qy_units_dirty_bytes() <= 4 * MIB);
    verify_all();
}

TEST(by_the_thread) {
    static bool yes = true;
    if (QY_ASAN || QY_TSAN) TEST_SKIP("needs a build without sanitizers: they know no bare threads");
    run_apart(in_turns, &yes);
}
TEST(without_a_thread) {
    static bool no = false;
    run_apart(in_turns, &no);
}

TEST_MAIN()
