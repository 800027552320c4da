// SPDX-License-Identifier: MIT
// bytes.h: what the blocks of a test are filled with, from a key of the block, to find that one was overwritten, moved
// wrongly, or is another's, too. Written and compared as a whole: byte by byte it would be most of the time of tests
// with large blocks, under memcheck and the sanitizers above all; they look at all that memcpy and memcmp touch.
#ifndef QUARRY_TESTS_BYTES_H
#define QUARRY_TESTS_BYTES_H

#include <stdint.h>
#include <string.h>

#include "harness.h"

enum { BYTES_PERIOD = 65521 };             // a prime: pages in a wrong order differ
static unsigned char bytes_table[131072];  // random, the same each time; read only after the start

__attribute__((constructor)) static void bytes_make(void) {
    uint64_t state = 1;
    for (size_t i = 0; i < sizeof bytes_table; i += 8) {
        uint64_t word = test_random(&state);
        memcpy(bytes_table + i, &word, 8);
    }
}

// The first period of what belongs to a key; it begins at one of 8192 places.
static const unsigned char *bytes_of(uint64_t key) { return bytes_table + (key * 0x9E3779B97F4A7C15u >> 51) * 8; }

__attribute__((unused)) static unsigned char bytes_at(uint64_t key, size_t i) {
    return bytes_of(key)[i % BYTES_PERIOD];
}

__attribute__((unused)) static void bytes_fill(void *p, size_t n, uint64_t key) {
    for (size_t i = 0; i < n; i += BYTES_PERIOD)
        memcpy((unsigned char *)p + i, bytes_of(key), n - i < BYTES_PERIOD ? n - i : BYTES_PERIOD);
}

// The first byte that is not the key's; n: all are.
__attribute__((unused)) static size_t bytes_differ(const void *p, size_t n, uint64_t key) {
    const unsigned char *c = p;
    for (size_t i = 0; i < n; i += BYTES_PERIOD)
        if (memcmp(c + i, bytes_of(key), n - i < BYTES_PERIOD ? n - i : BYTES_PERIOD)) {
            while (c[i] == bytes_at(key, i)) i++;
            return i;
        }
    return n;
}

// The first byte that is not zero; n: all are.
__attribute__((unused)) static size_t bytes_nonzero(const void *p, size_t n) {
    const unsigned char *c = p;
    if (!n || (!c[0] && !memcmp(c, c + 1, n - 1))) return n;
    size_t i = 0;
    while (!c[i]) i++;
    return i;
}

#endif
