// SPDX-License-Identifier: MIT
// zone.c: see zone.h. Words are looked at whole; of the word that the block ends in, the bytes behind it.
#include "check/zone.h"

#include <string.h>

#include "base/num.h"
#include "os/os.h"
#include "rt/diag.h"

#define FILLED_WHOLE ((size_t)16 << 10)
#define FILLED_PART ((size_t)4 << 10)
#define NO_ZERO UINT64_C(0x0101010101010101)

static uint64_t secret;

void qy_check_zone_begin(void) {
    if (!secret) secret = qy_os_random() | 1;
}

// No byte of it is zero.
static uint64_t zone_word(uintptr_t at) { return ((secret ^ at) * UINT64_C(0x9E3779B97F4A7C15)) | NO_ZERO; }
// The last one has its zero in the lowest byte.
static uint64_t zone_last(uintptr_t at) { return zone_word(at) & ~UINT64_C(0xFF); }
static uint64_t zone_at(uintptr_t at, uintptr_t end) { return at + 8 == end ? zone_last(at) : zone_word(at); }

// Another thread may look at the canary of a neighbour while that changes: it finds by the record that it did.
static uint64_t zone_load(uintptr_t at) { return __atomic_load_n((const uint64_t *)at, __ATOMIC_RELAXED); }
static void zone_store(uintptr_t at, uint64_t word) { __atomic_store_n((uint64_t *)at, word, __ATOMIC_RELAXED); }

// Of the word that holds byte n, the bytes from n on.
static uint64_t mask_from(size_t n) { return ~UINT64_C(0) << 8 * (n % 8); }

static void zone_words(uintptr_t at, uintptr_t end) {
    for (; at < end; at += 8) zone_store(at, zone_at(at, end));
}

void qy_check_zone_make(uintptr_t block, size_t n, size_t room) {
    qy_assert(n + QY_CHECK_ZONE <= room && room % 8 == 0);
    uintptr_t end = block + qy_check_zone_end(n & ~(size_t)7, room), at = block + (n & ~(size_t)7);
    if (n % 8) {
        zone_store(at, (zone_load(at) & ~mask_from(n)) | (zone_word(at) & mask_from(n)));
        at += 8;
    }
    zone_words(at, end);
}

void qy_check_zone_mend(uintptr_t block, size_t n, size_t room) {
    uintptr_t end = block + qy_check_zone_end(n & ~(size_t)7, room), at = block + (n & ~(size_t)7);
    uint64_t word = zone_word(at);
    for (size_t i = n % 8; i < 8; i++) ((unsigned char *)at)[i] = (unsigned char)(word >> 8 * i);
    zone_words(at + 8, end);
}

static qy_check_damage_t damage_of(uintptr_t block, uintptr_t from, uintptr_t to) {
    return (qy_check_damage_t){from - block, to - block};
}

// The first and the last byte of a word that differs.
static void damage_add(uintptr_t at, uint64_t difference, uintptr_t *from, uintptr_t *to) {
    if (!*to) *from = at + (unsigned)__builtin_ctzll(difference) / 8;
    *to = at + 8 - (unsigned)__builtin_clzll(difference) / 8;
}

qy_check_damage_t qy_check_zone_look(uintptr_t block, size_t n, size_t room) {
    uintptr_t end = block + qy_check_zone_end(n & ~(size_t)7, room), at = block + (n & ~(size_t)7);
    uintptr_t from = block, to = 0;
    uint64_t difference = (zone_load(at) ^ zone_word(at)) & mask_from(n);
    if (difference) damage_add(at, difference, &from, &to);
    for (at += 8; at < end; at += 8)
        if ((difference = zone_load(at) ^ zone_at(at, end))) damage_add(at, difference, &from, &to);
    return to ? damage_of(block, from, to) : (qy_check_damage_t){0, 0};
}

bool qy_check_zone_end_is_good(uintptr_t block, size_t n, size_t room) {
    uintptr_t end = block + qy_check_zone_end(n & ~(size_t)7, room);
    return zone_load(end - 8) == zone_last(end - 8) && zone_load(end - 16) == zone_word(end - 16);
}

// ---- freed blocks ---------------------------------------------------------------------------------------------------

// Of a long block the place between is the same whenever it is asked for.
static uintptr_t place_between(uintptr_t block, size_t n) {
    return block + (zone_word(block) >> 16) % ((n - FILLED_PART) / 8) * 8;
}

// So many bytes at a time: a few stores of the processor's longest registers.
typedef uint64_t fill_line_t __attribute__((vector_size(64), aligned(8), may_alias));
#define FILL_LINE ((fill_line_t){0} + QY_CHECK_FILL)

static void fill_words(uintptr_t at, size_t n) {
    uintptr_t end = at + n;
    for (; at + sizeof(fill_line_t) <= end; at += sizeof(fill_line_t)) *(fill_line_t *)at = FILL_LINE;
    for (; at + 8 <= end; at += 8) zone_store(at, QY_CHECK_FILL);
}

void qy_check_fill(uintptr_t block, size_t n) {
    size_t whole = n & ~(size_t)7;
    memset((void *)(block + whole), (int)(QY_CHECK_FILL & 0xFF), n - whole);
    if (n <= FILLED_WHOLE) {
        fill_words(block, whole);
        return;
    }
    fill_words(block, FILLED_PART);
    fill_words(place_between(block, n), FILLED_PART);
    fill_words(block + whole - FILLED_PART, FILLED_PART);
}

static bool line_is_filled(uintptr_t at) {
    fill_line_t d = *(const fill_line_t *)at ^ FILL_LINE;
    return !((d[0] | d[1] | d[2] | d[3]) | (d[4] | d[5] | d[6] | d[7]));
}

static void look_at_words(uintptr_t at, size_t n, uintptr_t *from, uintptr_t *to) {
    for (uintptr_t end = at + n; at + 8 <= end; at += 8) {
        while (at + sizeof(fill_line_t) <= end && line_is_filled(at)) at += sizeof(fill_line_t);
        if (at + 8 > end) return;
        uint64_t difference = zone_load(at) ^ QY_CHECK_FILL;
        if (difference) damage_add(at, difference, from, to);
    }
}

qy_check_damage_t qy_check_fill_look(uintptr_t block, size_t n) {
    uintptr_t from = block, to = 0;
    size_t whole = n & ~(size_t)7;
    if (n <= FILLED_WHOLE) {
        look_at_words(block, whole, &from, &to);
    } else {
        look_at_words(block, FILLED_PART, &from, &to);
        uintptr_t between = place_between(block, n);
        if (!to) look_at_words(between, FILLED_PART, &from, &to);
        if (!to) look_at_words(block + whole - FILLED_PART, FILLED_PART, &from, &to);
    }
    for (uintptr_t at = block + whole; at < block + n; at++)
        if (*(const unsigned char *)at != (QY_CHECK_FILL & 0xFF)) {
            if (!to) from = at;
            to = at + 1;
        }
    return to ? damage_of(block, from, to) : (qy_check_damage_t){0, 0};
}
