// SPDX-License-Identifier: MIT
#include "base/num.h"

#include "harness.h"

TEST(powers_of_two) {
    CHECK(!qy_is_pow2(0));
    CHECK(qy_is_pow2(1));
    CHECK(!qy_is_pow2(3));
    CHECK(!qy_is_pow2(SIZE_MAX));
    for (int i = 0; i < 64; i++) {
        size_t x = (size_t)1 << i;
        CHECK(qy_is_pow2(x));
        CHECK(i < 2 || !qy_is_pow2(x - 1));
        CHECK(i == 0 || !qy_is_pow2(x + 1));
    }
}

TEST(rounding) {
    CHECK_EQ(qy_round_up(0, 16), 0);
    CHECK_EQ(qy_round_up(1, 16), 16);
    CHECK_EQ(qy_round_up(16, 16), 16);
    CHECK_EQ(qy_round_up(17, 16), 32);
    CHECK_EQ(qy_round_up(5, 1), 5);
    CHECK_EQ(qy_round_down(15, 16), 0);
    CHECK_EQ(qy_round_down(16, 16), 16);
    CHECK_EQ(qy_round_down(SIZE_MAX, 4096), SIZE_MAX - 4095);
    CHECK_PTR_EQ(qy_ptr_up((void *)4097, 4096), (void *)8192);
    // Against the definition, at random.
    uint64_t seed = test_seed;
    for (int i = 0; i < 10000; i++) {
        size_t align = (size_t)1 << test_random(&seed) % 40, x = test_random(&seed) >> 8;
        size_t up = qy_round_up(x, align), down = qy_round_down(x, align);
        CHECK_EQ(up % align, 0);
        CHECK_EQ(down % align, 0);
        CHECK(up >= x && up - x < align);
        CHECK(down <= x && x - down < align);
    }
}

TEST(logarithms) {
    for (unsigned i = 0; i < 64; i++) {
        size_t x = (size_t)1 << i;
        CHECK_EQ(qy_log2_floor(x), i);
        CHECK_EQ(qy_log2_ceil(x), i);
        if (i > 1) {
            CHECK_EQ(qy_log2_floor(x - 1), i - 1);
            CHECK_EQ(qy_log2_ceil(x - 1), i);
            CHECK_EQ(qy_log2_floor(x + 1), i);
        }
        if (i > 0 && i < 63) CHECK_EQ(qy_log2_ceil(x + 1), i + 1);
    }
    CHECK_EQ(qy_log2_ceil(0), 0);
    CHECK_EQ(qy_log2_floor(SIZE_MAX), 63);
    CHECK_EQ(qy_log2_ceil(SIZE_MAX), 64);
}

TEST(products) {
    size_t p;
    CHECK(!qy_mul_overflows(3, 5, &p));
    CHECK_EQ(p, 15);
    CHECK(!qy_mul_overflows(SIZE_MAX, 1, &p));
    CHECK(!qy_mul_overflows(SIZE_MAX, 0, &p));
    CHECK(!qy_mul_overflows((size_t)1 << 32, ((size_t)1 << 32) - 1, &p));
    CHECK(qy_mul_overflows((size_t)1 << 32, (size_t)1 << 32, &p));
    CHECK(qy_mul_overflows(SIZE_MAX, 2, &p));
}

TEST(extremes) {
    CHECK_EQ(qy_min(1, 2), 1);
    CHECK_EQ(qy_min(2, 1), 1);
    CHECK_EQ(qy_max(1, 2), 2);
    CHECK(qy_max(SIZE_MAX, 0) == SIZE_MAX);  // unsigned
}

TEST_MAIN()
