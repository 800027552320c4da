// SPDX-License-Identifier: MIT
// verify.c: contents that tell whose they are, and what to say when they changed
#include "touch.h"

#include <string.h>

// Consecutive words differ, and so do the same words of other slots and other stamps.
static uint64_t seed_of(uint32_t slot, uint32_t stamp) {
    return ((uint64_t)slot << 32 | stamp) * UINT64_C(0x9E3779B97F4A7C15) ^ UINT64_C(0x5DEECE66D1CE4E5B);
}
static uint64_t word_of(uint64_t seed, uint64_t index) { return (seed + index) * UINT64_C(0xD1B54A32D192ED03); }

void qy_fill(char *p, uint64_t size, uint32_t slot, uint32_t stamp) {
    uint64_t seed = seed_of(slot, stamp), i = 0;
    for (; (i + 1) * 8 <= size; i++) {
        uint64_t word = word_of(seed, i);
        memcpy(p + i * 8, &word, 8);
    }
    uint64_t word = word_of(seed, i);
    memcpy(p + i * 8, &word, size - i * 8);
}

static void wrong(
    qy_seat_t *seat, uint32_t thread, uint32_t slot, uint64_t size, uint64_t offset, uint64_t expected, uint64_t seen) {
    seat->wrong++;
    if (atomic_exchange(&qy_wrong->found, 1)) return;
    qy_wrong->thread = thread;
    qy_wrong->slot = slot;
    qy_wrong->offset = offset;
    qy_wrong->size = size;
    qy_wrong->expected = expected;
    qy_wrong->seen = seen;
}

void qy_examine(qy_seat_t *seat, uint32_t thread, const char *p, uint64_t size, uint32_t slot, uint32_t stamp) {
    uint64_t seed = seed_of(slot, stamp);
    seat->checked++;
    for (uint64_t i = 0; i * 8 < size; i++) {
        uint64_t word = word_of(seed, i), seen = word;
        uint64_t bytes = size - i * 8 < 8 ? size - i * 8 : 8;
        memcpy(&seen, p + i * 8, bytes);
        if (seen != word) return wrong(seat, thread, slot, size, i * 8, word, seen);
    }
}

void qy_examine_zero(qy_seat_t *seat, uint32_t thread, const char *p, uint64_t size, uint32_t slot) {
    seat->checked++;
    for (uint64_t i = 0; i < size; i++) {
        if (p[i]) return wrong(seat, thread, slot, size, i, 0, (unsigned char)p[i]);
    }
}

// What malloc promises for a size: the largest alignment of a type that fits into it.
void qy_examine_address(qy_seat_t *seat, const void *p, uint64_t size, unsigned align) {
    uintptr_t least = size >= _Alignof(max_align_t) ? _Alignof(max_align_t) : size >= 8 ? 8
                                                                                        : 1;
    if (align && (UINT64_C(1) << align) > least) least = (uintptr_t)1 << align;
    if ((uintptr_t)p % least) seat->misaligned++;
}

qy_verdict_t qy_verdict(void) {
    qy_verdict_t sum = {0, 0, 0};
    for (uint32_t s = 0; s < qy_seat_count; s++) {
        sum.checked += qy_seats[s].checked;
        sum.wrong += qy_seats[s].wrong;
        sum.misaligned += qy_seats[s].misaligned;
    }
    return sum;
}
