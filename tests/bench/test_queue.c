// SPDX-License-Identifier: MIT
// test_queue.c: a queue that is overtaken is a queue: each of its blocks ends once, near its turn.
#include "common/queue.h"
#include "harness.h"

TEST(each_ends_once_near_its_turn) {
    enum { TURNS = 200000 };
    static unsigned char ended[TURNS + QUEUE_WITHIN_MAX];
    for (unsigned within = 1; within <= QUEUE_WITHIN_MAX; within++) {
        queue_t q = {.within = within, .random = test_seed};
        uint64_t farthest = 0, out_of_turn = 0;
        memset(ended, 0, sizeof ended);
        for (uint64_t turn = 0; turn < TURNS; turn++) {
            const uint64_t number = queue_next(&q), off = number > turn ? number - turn : turn - number;
            CHECK_LT(number, sizeof ended);
            CHECK_EQ(ended[number]++, 0);
            CHECK_LT(off, within);
            if (off > farthest) farthest = off;
            out_of_turn += off != 0;
        }
        // Nobody is left behind.
        for (uint64_t number = 0; number + within <= TURNS; number++) CHECK_EQ(ended[number], 1);
        // And it is not in order: the farthest places are reached, and most blocks are off their turn.
        CHECK_EQ(farthest, within - 1);
        if (within > 4) CHECK_GT(out_of_turn, TURNS / 2);
    }
}

TEST_MAIN()
