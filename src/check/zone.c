// SPDX-License-Identifier: MIT
// zone.c: see zone.h. Words are looked at whole; of the word that the block ends in, the bytes behind it.
#include "check/zone.h"

#include <string.h>

#include "base/num.h"
#include "os/os.h"
#include "rt/diag.h"

#define FILLED_WHOLE ((size_t)16 << 10)
#define FILLED_PART ((size_t)4 << 10)

uint64_t qy_check_secret;

void qy_check_zone_begin(void) {
    if (!qy_check_secret) qy_check_secret = qy_os_random() | 1;
}

static uint64_t zone_word(uintptr_t at) { return qy_check_seed(at) | QY_CHECK_NO_ZERO; }
static uint64_t zone_at(uintptr_t at, uintptr_t end) {
    return at + 8 == end ? qy_check_zone_last(qy_check_seed(at)) : zone_word(at);
}

// Of [at, end), which is two words or more, all but the first.
static void zone_words_behind(uintptr_t at, uintptr_t end) {
    uint64_t seed = qy_check_seed(at += 8);
    for (; at < end - 8; at += 8, seed += QY_CHECK_SEED_STEP) qy_check_zone_store(at, seed | QY_CHECK_NO_ZERO);
    qy_check_zone_store(end - 8, qy_check_zone_last(seed));
}

// The first word comes last: to load it from a new page before anything is stored there costs a fault more.
void qy_check_zone_make(uintptr_t block, size_t n, size_t room) {
    qy_assert(n + QY_CHECK_ZONE <= room && room % 8 == 0);
    size_t first = n & ~(size_t)7;
    uintptr_t at = block + first;
    zone_words_behind(at, block + qy_check_zone_end(first, room));
    uint64_t mask = qy_check_mask_from(n);
    qy_check_zone_store(at, (qy_check_zone_load(at) & ~mask) | (zone_word(at) & mask));
}

void qy_check_zone_mend(uintptr_t block, size_t n, size_t room) {
    size_t first = n & ~(size_t)7;
    uintptr_t at = block + first;
    uint64_t word = zone_word(at);
    for (size_t i = n % 8; i < 8; i++) ((unsigned char *)at)[i] = (unsigned char)(word >> 8 * i);
    zone_words_behind(at, block + qy_check_zone_end(first, room));
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
    uint64_t difference = (qy_check_zone_load(at) ^ zone_word(at)) & qy_check_mask_from(n);
    if (difference) damage_add(at, difference, &from, &to);
    for (at += 8; at < end; at += 8)
        if ((difference = qy_check_zone_load(at) ^ zone_at(at, end))) damage_add(at, difference, &from, &to);
    return to ? damage_of(block, from, to) : (qy_check_damage_t){0, 0};
}

// ---- freed blocks ---------------------------------------------------------------------------------------------------

// Of a long block the place between is the same whenever it is asked for.
static uintptr_t place_between(uintptr_t block, size_t n) {
    return block + (zone_word(block) >> 16) % ((n - FILLED_PART) / 8) * 8;
}

// So many bytes at a time: a few of the processor's longest registers, and one of those that each processor has.
typedef uint64_t fill_line_t __attribute__((vector_size(64), aligned(1), may_alias));
typedef uint64_t fill_pair_t __attribute__((vector_size(16), aligned(1), may_alias));
#define FILL_LINE ((fill_line_t){0} + QY_CHECK_FILL)
#define FILL_PAIR ((fill_pair_t){0} + QY_CHECK_FILL)

// The last pair overlaps the one before where the length is no multiple.
static void fill_bytes(uintptr_t at, size_t n) {
    uintptr_t end = at + n;
    for (; at + sizeof(fill_line_t) <= end; at += sizeof(fill_line_t)) *(fill_line_t *)at = FILL_LINE;
    for (; at + sizeof(fill_pair_t) <= end; at += sizeof(fill_pair_t)) *(fill_pair_t *)at = FILL_PAIR;
    if (at < end) *(fill_pair_t *)(end - sizeof(fill_pair_t)) = FILL_PAIR;
}

// Less than a pair. Behind the bytes lies the canary, at which others may look.
static void fill_few(uintptr_t block, size_t n) {
    uintptr_t at = block + (n & 8);
    uint64_t mask = qy_check_mask_from(n);
    if (n & 8) qy_check_zone_store(block, QY_CHECK_FILL);
    qy_check_zone_store(at, (qy_check_zone_load(at) & mask) | (QY_CHECK_FILL & ~mask));
}

void qy_check_fill(uintptr_t block, size_t n) {
    if (n < sizeof(fill_pair_t)) {
        fill_few(block, n);
    } else if (n <= FILLED_WHOLE) {
        fill_bytes(block, n);
    } else {
        fill_bytes(block, FILLED_PART);
        fill_bytes(place_between(block, n), FILLED_PART);
        fill_bytes(block + n - FILLED_PART, FILLED_PART);
    }
}

static bool fill_is_whole(uintptr_t at, size_t n) {
    uintptr_t end = at + n;
    fill_pair_t difference = {0}, other = {0};
    for (; at + 4 * sizeof(fill_pair_t) <= end; at += 4 * sizeof(fill_pair_t)) {
        const fill_pair_t *pair = (const fill_pair_t *)at;
        difference |= (pair[0] ^ FILL_PAIR) | (pair[1] ^ FILL_PAIR);
        other |= (pair[2] ^ FILL_PAIR) | (pair[3] ^ FILL_PAIR);
    }
    difference |= other;
    for (; at + sizeof(fill_pair_t) <= end; at += sizeof(fill_pair_t))
        difference |= *(const fill_pair_t *)at ^ FILL_PAIR;
    if (at < end) difference |= *(const fill_pair_t *)(end - sizeof(fill_pair_t)) ^ FILL_PAIR;
    return !(difference[0] | difference[1]);
}

static bool fill_is_in_few(uintptr_t block, size_t n) {
    uint64_t first = n & 8 ? qy_check_zone_load(block) ^ QY_CHECK_FILL : 0;
    return !(first | ((qy_check_zone_load(block + (n & 8)) ^ QY_CHECK_FILL) & ~qy_check_mask_from(n)));
}

bool qy_check_fill_is_good(uintptr_t block, size_t n) {
    if (n < sizeof(fill_pair_t)) return fill_is_in_few(block, n);
    if (n <= FILLED_WHOLE) return fill_is_whole(block, n);
    return fill_is_whole(block, FILLED_PART) && fill_is_whole(place_between(block, n), FILLED_PART) &&
           fill_is_whole(block + n - FILLED_PART, FILLED_PART);
}

static void look_at_bytes(uintptr_t at, size_t n, uintptr_t *from, uintptr_t *to) {
    for (uintptr_t end = at + n; at < end; at++) {
        if (*(const unsigned char *)at == (QY_CHECK_FILL & 0xFF)) continue;
        if (!*to) *from = at;
        *to = at + 1;
    }
}

qy_check_damage_t qy_check_fill_look(uintptr_t block, size_t n) {
    uintptr_t from = block, to = 0;
    if (n <= FILLED_WHOLE) {
        look_at_bytes(block, n, &from, &to);
    } else {
        look_at_bytes(block, FILLED_PART, &from, &to);
        if (!to) look_at_bytes(place_between(block, n), FILLED_PART, &from, &to);
        if (!to) look_at_bytes(block + n - FILLED_PART, FILLED_PART, &from, &to);
    }
    return to ? damage_of(block, from, to) : (qy_check_damage_t){0, 0};
}
