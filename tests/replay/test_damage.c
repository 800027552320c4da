// SPDX-License-Identifier: MIT
// test_damage.c: no plan makes the replayer crash, hang or touch what it should not: it is refused or played
#include <stdbool.h>

#include "plans.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define FEWER 5  // a process of a sanitizer takes long to start
#else
#define FEWER 1
#endif

static plan_maker_t maker;

static int exit_status(plan_bytes_t plan, const char *option) {
    int status = replay(plan, 0, "--touch=none", option);
    if (!WIFEXITED(status)) TEST_FAIL("signal %d: %.400s", WTERMSIG(status), read_whole(said_path));
    return WEXITSTATUS(status);
}

static plan_bytes_t copy_of(plan_bytes_t plan) {
    plan_bytes_t copy = {0, 0};
    append(&copy, plan.bytes, plan.size);
    return copy;
}

TEST(cut_off_anywhere) {
    plan_crowd(&maker, test_seed, false, 3, 20);
    plan_bytes_t plan = plan_end(&maker);
    CHECK_EQ(exit_status(plan, 0), 0);
    for (size_t size = 0; size < plan.size; size += 1 + size / 24) {
        plan_bytes_t part = {plan.bytes, size};
        CHECK_EQ(exit_status(part, 0), 3);
    }
    free(plan.bytes);
}

// Words of a plan, replaced by words that are each sensible somewhere.
TEST(words_in_the_wrong_place) {
    uint64_t seed = test_seed;
    int played = 0, refused = 0;
    for (int round = 0; round < 300 / FEWER; round++) {
        plan_crowd(&maker, test_seed + (uint64_t)round % 4, round & 1, 1 + (uint32_t)round % 4, 100);
        plan_bytes_t plan = plan_end(&maker);
        uint64_t *words = (uint64_t *)(void *)(plan.bytes + sizeof(qy_plan_head_t));
        size_t count = (plan.size - sizeof(qy_plan_head_t)) / 8;
        for (uint64_t n = 1 + test_random(&seed) % 3; n; n--) {
            uint64_t chance = test_random(&seed);
            uint64_t *word = &words[chance % count], *other = &words[(chance >> 32) % count];
            switch (chance >> 60 & 3) {
            case 0: *word = *other; break;
            case 1:
                *word = plan_word(
                    (unsigned)(chance >> 20) & 15, (uint32_t)(chance >> 24) % 260, (uint32_t)(chance >> 36) % 200);
                break;
            case 2: *word ^= UINT64_C(1) << (chance >> 40 & 63); break;
            default:;
                uint64_t kept = *word;
                *word = *other;
                *other = kept;
            }
        }
        int status = exit_status(plan, round & 2 ? "--timed" : "--no-samples");
        if (status && status != 3) TEST_FAIL("round %d: exit status %d: %.400s", round, status, read_whole(said_path));
        played += !status;
        refused += status == 3;
        free(plan.bytes);
    }
    printf("%d played, %d refused\n", played, refused);
    CHECK(played > 0 && refused > 100 / FEWER);
    replay_done();
}

TEST(numbers_in_the_head_that_lie) {
    plan_crowd(&maker, test_seed, false, 3, 200);
    plan_bytes_t plan = plan_end(&maker);
    static const uint32_t lies[] = {0, 1, 2, 0x7fffffff, 0x80000000, 0xffffffff};
    for (size_t at = 8 + 4 * (test_seed % FEWER); at + 4 <= 112; at += 4 * FEWER) {  // up to what only informs
        for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
            plan_bytes_t other = copy_of(plan);
            uint32_t truth;
            memcpy(&truth, other.bytes + at, 4);
            memcpy(other.bytes + at, &lies[i], 4);
            int status = exit_status(other, "--no-samples");
            // A larger table or window does no harm, nor the lower half of a number that is not zero above.
            if (status != 3 && status != 4 && status != 0) TEST_FAIL("byte %zu: exit status %d", at, status);
            bool harmless = at == 28 || at == 24 || at == 32 || at == 20;
            if (truth != lies[i] && !harmless) CHECK(status);
            free(other.bytes);
        }
    }
    free(plan.bytes);
    replay_done();
}

TEST(threads_that_wait_for_each_other) {
    // Each frees what the other allocates later.
    plan_begin(&maker, test_seed, false, 2);
    begin_thread(&maker, 0);
    for (uint32_t t = 0; t < 2; t++) {
        note(&maker, t, plan_word(QY_PLAN_WAIT, 1 - t, 1));
        note(&maker, t, plan_word(QY_PLAN_FREE, 1 - t, 0));
        note(&maker, t, plan_word(QY_PLAN_MALLOC, t, 10) | QY_PLAN_SIGNAL);
    }
    maker.operations[0] = 4, maker.operations[QY_PLAN_MALLOC] = maker.operations[QY_PLAN_FREE] = 2;
    plan_bytes_t plan = plan_end(&maker);
    CHECK_EQ(exit_status(plan, 0), 3);
    CHECK(strstr(read_whole(said_path), "wait for each other"));
    free(plan.bytes);
    replay_done();
}

// What is written of a block stands before its operation, and a look has a number below the words of the file.
TEST(touches_and_looks) {
    static const struct {
        unsigned kind, next;
        uint32_t value;
        int status;
    } cases[] = {{QY_PLAN_TOUCH, QY_PLAN_MALLOC, 3, 0}, {QY_PLAN_TOUCH, QY_PLAN_MALLOC, UINT32_MAX, 0},
        {QY_PLAN_TOUCH, QY_PLAN_FREE, 3, 3}, {QY_PLAN_TOUCH, QY_PLAN_TIME, 3, 3}, {QY_PLAN_TOUCH, QY_PLAN_TOUCH, 3, 3},
        {QY_PLAN_LOOK, QY_PLAN_MALLOC, 0, 0}, {QY_PLAN_LOOK, QY_PLAN_MALLOC, 5, 0},
        {QY_PLAN_LOOK, QY_PLAN_MALLOC, UINT32_MAX, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool frees = cases[i].next == QY_PLAN_FREE;
        plan_begin(&maker, test_seed, false, 2);
        if (frees) note(&maker, 0, plan_word(QY_PLAN_MALLOC, 0, 10));
        note(&maker, 0, plan_word(cases[i].kind, 0, cases[i].value));
        note(&maker, 0, plan_word(cases[i].next, 0, 300000));
        maker.operations[QY_PLAN_MALLOC] = frees || cases[i].next == QY_PLAN_MALLOC;
        maker.operations[QY_PLAN_FREE] = frees;
        maker.operations[0] = maker.operations[QY_PLAN_MALLOC] + maker.operations[QY_PLAN_FREE];
        plan_bytes_t plan = plan_end(&maker);
        int status = WEXITSTATUS(replay(plan, 0, "--touch=recorded", "--looks"));
        if (status != cases[i].status) TEST_FAIL("case %zu: %d, %.400s", i, status, read_whole(said_path));
        free(plan.bytes);
    }
    replay_done();
}

TEST(what_is_no_plan) {
    CHECK_EQ(WEXITSTATUS(replay((plan_bytes_t){0, 0}, 0, 0, 0)), 3);
    CHECK_EQ(WEXITSTATUS(replay((plan_bytes_t){0, 0}, 0, "--instances", "0")), 2);
    CHECK_EQ(WEXITSTATUS(replay((plan_bytes_t){0, 0}, 0, "--nonsense", 0)), 2);
    CHECK_EQ(WEXITSTATUS(replay((plan_bytes_t){0, 0}, 0, "--timed", "--curve=5")), 2);
    CHECK_EQ(WEXITSTATUS(replay((plan_bytes_t){0, 0}, 0, "/nonexistent/plan", 0)), 2);
    replay_done();
}

TEST_MAIN()
