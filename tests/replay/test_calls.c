// SPDX-License-Identifier: MIT
// test_calls.c: the replayer asks malloc for what the plan says and for nothing else
#include <stdbool.h>

#include "plans.h"

static plan_maker_t maker;

static void check_calls(const char *option) {
    uint64_t planned[QY_PLAN_KINDS];
    memcpy(planned, maker.operations, sizeof planned);
    uint32_t threads = maker.spawned;
    plan_bytes_t plan = plan_end(&maker);
    CHECK_EQ(replay(plan, COUNTING_MALLOC, option, 0), 0);
    // A realloc of NULL is a realloc. What is left at the end is freed: the report says how much.
    long long left = reported(read_whole(report_path), "\"left\"", "blocks");
    const char *said = read_whole(said_path);
    CHECK_EQ(reported(said, "", "mallocs"), planned[QY_PLAN_MALLOC]);
    CHECK_EQ(reported(said, "", "reallocs"), planned[QY_PLAN_REALLOC]);
    CHECK_EQ(reported(said, "", "memaligns"), planned[QY_PLAN_MEMALIGN]);
    // pthread_create has one block for each thread, until it is joined.
    CHECK_EQ(reported(said, "", "callocs"), planned[QY_PLAN_CALLOC] + threads);
    CHECK_EQ(reported(said, "", "frees"), planned[QY_PLAN_FREE] + (uint64_t)left + threads);
    // And when a thread ends, the C library may free buffers of its own that it never had.
    CHECK_GE(reported(said, "", "nulls"), planned[QY_PLAN_FREE_NULL]);
    if (!threads) CHECK_EQ(reported(said, "", "nulls"), planned[QY_PLAN_FREE_NULL]);
    free(plan.bytes);
    replay_done();
}

TEST(one_thread) {
    plan_crowd(&maker, test_seed, false, 1, 20000);
    check_calls(0);
}

TEST(many_threads) {
    plan_crowd(&maker, test_seed, false, 20, 20000);
    check_calls("--timed");
    plan_crowd(&maker, test_seed, true, 5, 5000);
    check_calls("--verify");
}

TEST_MAIN()
