// SPDX-License-Identifier: MIT
// shapes.h: functions with all kinds of frames, each of which calls shape_next() somewhere inside.
#ifndef QUARRY_TESTS_SHAPES_H
#define QUARRY_TESTS_SHAPES_H

#define SHAPES 18
typedef void (*shape_t)(int n);

// The same functions, compiled in different ways.
extern const shape_t shapes_o0[SHAPES], shapes_o1[SHAPES], shapes_o2[SHAPES], shapes_o3[SHAPES], shapes_os[SHAPES],
    shapes_fp[SHAPES], shapes_o0_nofp[SHAPES];
#define SHAPE_SETS \
    { shapes_o0, shapes_o1, shapes_o2, shapes_o3, shapes_os, shapes_fp, shapes_o0_nofp }

// The test's: calls the next shape of its plan, or looks at the stack.
void shape_next(void);
// Makes signal `number` at a place where it is delivered at once.
#define SHAPE_SIGNAL SIGUSR1

#endif
