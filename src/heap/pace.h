// SPDX-License-Identifier: MIT
// pace.h: how often samples are taken, where the rate adapts.
//
// A program that allocates much would have more samples than are worth their time, and one that allocates little would
// have none. So the mean distance doubles when samples come faster than a thousand in a second, or when half of the
// rows for live ones that were left are taken. It halves when fewer than fifty a second came. Both end at bounds.
//
// A sample costs some 4 µs, so a thousand of them are 0.4 % of a second. How fast they come is judged from 128 on:
// that number is within a fifth of its mean in 97 of 100 windows, and a program of a tenth of a second has its rate.
// Guarded blocks have a budget of their own, and a short program is to have some: they are judged from a thousand on.
//
// It is decided when a sample is told, by what was told before. Each block is drawn at the rate of that moment, which
// its mark keeps and its sample says. So a sample stands for as many blocks as it should, whichever way the rate goes.
#ifndef QY_HEAP_PACE_H
#define QY_HEAP_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define QY_PACE_SECOND UINT64_C(1000000000)
#define QY_PACE_MANY 1000u   // births in a second
#define QY_PACE_JUDGES 128u  // births that suffice for samples
#define QY_PACE_FEW 50u
#define QY_PACE_FINEST 16u    // 64 KiB
#define QY_PACE_COARSEST 30u  // 1 GiB

typedef struct qy_pace {
    uint64_t control;    // the control word, but for the rate, that the rest is of
    uint64_t since_ns;   // when the count began
    uint32_t births;     // since then
    uint32_t judges;     // births, before they may be many; 0: QY_PACE_MANY
    uint32_t live_most;  // so many live ones are too many for this rate
} qy_pace_t;

// One more sample was told at `now`, `birth` or its end; so many of `rows` live. What the control word should be.
// `finest`: no more than this.
uint64_t qy_pace_next(
    qy_pace_t *pace, uint64_t control, uint64_t now, bool birth, uint32_t live, uint32_t rows, unsigned finest);

#endif
