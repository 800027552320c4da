// SPDX-License-Identifier: MIT
// test_encode.c: the fields of records, against a decoder that takes one bit after the other.
#include "trace/encode.h"

#include "harness.h"

static uint64_t decode(const uint8_t **at) {
    uint64_t n = 0;
    for (unsigned shift = 0;; shift += 7) {
        uint8_t byte = *(*at)++;
        if (shift < 64) n |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return n;
    }
}

static unsigned length_of(uint64_t v) {
    unsigned n = 1;
    while (v >>= 7) n++;
    return n;
}

TEST(numbers) {
    uint64_t state = test_seed;
    for (int i = 0; i < 1000000; i++) {
        uint64_t v = test_random(&state) >> (i % 64);
        if (i < 640) v = (UINT64_C(1) << i % 64) - (uint64_t)(i / 64 % 3);  // around each power of two
        uint8_t buf[32];
        memset(buf, 0xee, sizeof buf);
        uint8_t *end = qy_put(buf + 8, v);
        const uint8_t *at = buf + 8;
        CHECK_EQ(end - buf - 8, length_of(v));
        CHECK_EQ(decode(&at), v);
        CHECK_PTR_EQ(at, end);
        for (int k = 0; k < 8; k++) CHECK_EQ(buf[k], 0xee);
        // Behind it there are zeros or what was there: never a part of the number.
        for (uint8_t *k = end; k < buf + 32; k++) CHECK(*k == 0 || *k == 0xee);
        CHECK(buf[8 + 10] == 0xee);
    }
}

TEST(signs) {
    CHECK_EQ(qy_zigzag(0), 0);
    CHECK_EQ(qy_zigzag(-1), 1);
    CHECK_EQ(qy_zigzag(1), 2);
    CHECK_EQ(qy_zigzag(INT64_MIN), UINT64_MAX);
    CHECK_EQ(qy_zigzag(INT64_MAX), UINT64_MAX - 1);
}

TEST(addresses) {
    uint64_t state = test_seed, written = 0, read = 0;
    for (int i = 0; i < 1000000; i++) {
        uint64_t a = (test_random(&state) >> (i % 48 + 7)) & ~(i % 3 ? UINT64_C(15) : 0);
        uint8_t buf[32];
        uint8_t *end = qy_put_address(buf, &written, a);
        const uint8_t *at = buf;
        uint64_t n = decode(&at), d = n >> 2 ^ -(n >> 1 & 1);
        CHECK_PTR_EQ(at, end);
        uint64_t got = read + (n & 1 ? d : d * 16);
        read = got & ~UINT64_C(15);
        CHECK_EQ(got, a);
        CHECK_EQ(written, read);
    }
}

TEST(longest_record_fits) {
    uint8_t buf[QY_RECORD_MOST + 16];
    memset(buf, 0xee, sizeof buf);
    uint8_t *at = qy_put_tag(buf, QY_OP_REALLOC, QY_V_STACK);
    uint64_t far = 0;
    for (int i = 0; i < 5; i++) at = qy_put(at, UINT64_MAX);
    at = qy_put_address(at, &far, UINT64_C(0xffffffffffff0001));
    CHECK_LE(at - buf, QY_RECORD_MOST);
    CHECK_EQ(buf[QY_RECORD_MOST], 0xee);
}

TEST(sum) {
    // Computed once by the definition, with another program.
    CHECK_EQ(qy_trace_sum("", 0), UINT64_C(0xcbf29ce484222325));
    uint8_t buf[100];
    for (unsigned n = 0; n <= sizeof buf; n++) {
        for (unsigned i = 0; i < n; i++) buf[i] = (uint8_t)(i * 7 + n);
        uint64_t h = UINT64_C(0xcbf29ce484222325);
        for (unsigned i = 0; i < n; i += 8) {
            uint64_t w = 0;
            for (unsigned k = i; k < i + 8 && k < n; k++) w |= (uint64_t)buf[k] << 8 * (k - i);
            h = (h ^ w) * UINT64_C(0x100000001b3);
            h ^= h >> 32;
        }
        CHECK_EQ(qy_trace_sum(buf, n), h);
    }
}

TEST(kinds) {
    CHECK_EQ(qy_trace_kind_of(0), 0);
    CHECK_EQ(qy_trace_kind_of(1), 1);
    CHECK_EQ(qy_trace_kind_of(16), 1);
    CHECK_EQ(qy_trace_kind_of(17), 2);
    CHECK_EQ(qy_trace_kind_of(16 * 32), 0);
    CHECK_EQ(qy_trace_kind_of(UINT64_MAX), 0);  // modulo 2^64
}

TEST_MAIN()
