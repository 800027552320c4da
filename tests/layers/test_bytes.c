// SPDX-License-Identifier: MIT
// test_bytes.c: proves that what tests/bytes.h compares as a whole is found out when one byte differs.
#include "bytes.h"

enum { N = 300000 };
static unsigned char p[N];
// The ends, and where one period ends and the next begins.
static const size_t places[] = {0, 1, 7, BYTES_PERIOD - 1, BYTES_PERIOD, 2 * BYTES_PERIOD - 1, 4 * BYTES_PERIOD, N - 1};
enum { PLACES = sizeof places / sizeof *places };

TEST(one_changed_byte_is_found) {
    bytes_fill(p, N, 77);
    CHECK_EQ(bytes_differ(p, N, 77), N);
    for (int i = 0; i < PLACES; i++) {
        size_t at = places[i];
        CHECK_EQ(p[at], bytes_at(77, at));
        p[at] ^= 1;
        CHECK_EQ(bytes_differ(p, N, 77), at);
        CHECK_EQ(bytes_differ(p, at, 77), at);
        p[at] ^= 1;
    }
}

TEST(another_key_and_another_page_differ) {
    bytes_fill(p, N, 77);
    CHECK_LT(bytes_differ(p, N, 78), N);
    for (size_t page = 4096; page + 4096 < N; page += 4096) CHECK_LT(bytes_differ(p + page, 4096, 77), 4096);
}

TEST(one_byte_that_is_not_zero_is_found) {
    memset(p, 0, N);
    CHECK_EQ(bytes_nonzero(p, N), N);
    CHECK_EQ(bytes_nonzero(p, 1), 1);
    CHECK_EQ(bytes_nonzero(p, 0), 0);
    for (int i = 0; i < PLACES; i++) {
        size_t at = places[i];
        p[at] = 9;
        CHECK_EQ(bytes_nonzero(p, N), at);
        CHECK_EQ(bytes_nonzero(p, at), at);
        p[at] = 0;
    }
}

TEST_MAIN()
