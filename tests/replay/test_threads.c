// SPDX-License-Identifier: MIT
// test_threads.c: plans of many threads, played with contents compared, also under sanitizers
#include <stdbool.h>

#include "plans.h"

static plan_maker_t maker;

// Sanitizers make threads slow: so many times less to do.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { LESS = 5 };
#else
enum { LESS = 1 };
#endif

// Contents, counts and what is left are as planned. In a sanitizer's build a race or an overrun ends the replayer.
static void check_plan(const char *option) {
    uint64_t operations = maker.operations[0], live = maker.live;
    plan_bytes_t plan = plan_end(&maker);
    int status = replay(plan, getenv("REPLAY_PRELOAD"), "--verify", option);
    if (status) TEST_FAIL("status %x: %.400s", (unsigned)status, read_whole(said_path));
    const char *report = read_whole(report_path);
    CHECK_EQ(reported(report, "", "played"), operations);
    CHECK_EQ(reported(report, "\"left\"", "bytes"), live);
    CHECK_EQ(reported(report, "\"verify\"", "wrong"), 0);
    CHECK_EQ(reported(report, "\"verify\"", "misaligned"), 0);
    CHECK(reported(report, "\"verify\"", "checked") > 0);
    free(plan.bytes);
    replay_done();
}

TEST(one_thread) {
    plan_crowd(&maker, test_seed, false, 1, 20000 / LESS);
    check_plan("--timed");
}

TEST(few_threads_that_share_everything) {
    for (uint32_t crowd = 2; crowd <= 5; crowd++) {
        plan_crowd(&maker, test_seed + crowd, false, crowd, 20000 / LESS);
        check_plan(0);
    }
}

TEST(many_threads) {
    plan_crowd(&maker, test_seed, false, 100, 30000 / LESS);
    check_plan("--no-samples");
}

TEST(turns) {
    for (uint32_t crowd = 1; crowd <= 9; crowd += 4) {
        plan_crowd(&maker, test_seed + crowd, true, crowd, 8000 / LESS);
        check_plan("--timed");
    }
}

// One block goes from thread to thread: nothing but waits.
TEST(a_block_that_is_handed_round) {
    enum { CROWD = 4 };
    plan_begin(&maker, test_seed, false, 1);
    while (maker.threads < CROWD) begin_thread(&maker, maker.threads - 1);
    operate(&maker, 0, 0, QY_PLAN_MALLOC, 100);
    for (uint32_t i = 0; i < 10000 / LESS; i++) operate(&maker, i % CROWD, 0, QY_PLAN_REALLOC, 50 + i % 977);
    check_plan(0);
}

// Threads of a few operations each; each is joined by the one that makes the next.
TEST(threads_that_come_and_go) {
    plan_begin(&maker, test_seed, false, 64);
    for (uint32_t i = 0; i < 2000 / LESS; i++) {
        begin_thread(&maker, 0);
        for (int n = 0; n < 4; n++) operate_somehow(&maker, maker.threads - 1);
        operate_somehow(&maker, 0);
        if (i >= 2) end_thread(&maker, maker.threads - 3, 0);
    }
    CHECK_EQ(maker.alive_most, 4);
    check_plan(0);
}

// Each asks the kernel how much is resident, for its lines.
TEST(statistics_of_several_performances) {
    plan_begin(&maker, test_seed, false, 4);
    for (uint32_t i = 0; i < 1000 / LESS; i++) {
        operate_somehow(&maker, 0);
        note(&maker, 0, plan_word(QY_PLAN_STATS, 0, 0));
        counted(&maker, QY_PLAN_STATS);
    }
    uint64_t operations = maker.operations[0];
    plan_bytes_t plan = plan_end(&maker);
    int status = replay(plan, getenv("REPLAY_PRELOAD"), "--classic", "--instances=4");
    if (status) TEST_FAIL("status %x: %.400s", (unsigned)status, read_whole(said_path));
    CHECK_EQ(reported(read_whole(report_path), "", "played"), 4 * operations);
    free(plan.bytes);
    replay_done();
}

TEST_MAIN()
