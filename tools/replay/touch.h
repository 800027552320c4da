// SPDX-License-Identifier: MIT
// touch.h: what a program would do with its blocks: write them. And, for --verify, read them again.
//
// "all" writes one word in each cache line: as many pages and lines as a full write takes, without its time.
// "recorded" does so up to where the program wrote, as far as that is known. "first" writes the first byte in each
// page. With --verify every byte is written, whatever the mode.
#ifndef QUARRY_REPLAY_TOUCH_H
#define QUARRY_REPLAY_TOUCH_H

#include "replay.h"

#define QY_PAGE 4096  // the smallest there is: larger ones are touched more than once

// Write the bytes from `from` up to `size`; as recorded no more than `most`.
static inline void qy_touch_block(char *p, uint64_t from, uint64_t size, uint64_t most, qy_touch_t mode) {
    if (mode == QY_TOUCH_RECORDED && size > most) size = most;
    if (mode == QY_TOUCH_NONE || from >= size) return;
    uint64_t step = mode == QY_TOUCH_FIRST ? QY_PAGE : QY_LINE;
    *(volatile char *)(p + from) = 1;
    // From then on at the beginning of each line or page.
    uint64_t at = from + step - ((uintptr_t)p + from) % step;
    for (; at < size; at += step) *(volatile char *)(p + at) = 1;
}

// verify.c: contents are made from the slot and its stamp. The block had `stamp` when it was written.
void qy_fill(char *p, uint64_t size, uint32_t slot, uint32_t stamp);
void qy_examine(qy_seat_t *seat, uint32_t thread, const char *p, uint64_t size, uint32_t slot, uint32_t stamp);
void qy_examine_zero(qy_seat_t *seat, uint32_t thread, const char *p, uint64_t size, uint32_t slot);
void qy_examine_address(qy_seat_t *seat, const void *p, uint64_t size, unsigned align);
qy_verdict_t qy_verdict(void);  // of all seats

#endif
