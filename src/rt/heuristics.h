// SPDX-License-Identifier: MIT
// heuristics.h: the guesses of the heap, by name: a dozen. Each costs some code and saves time or memory in programs
// that do what it guesses. Parts of the code that serve one guess have one name.
//
// A build with QY_CFG_WITHOUT=1 leaves out those that QUARRY_WITHOUT names ("colour,kept"), to show what each is
// worth: `cmake --build build --target quarry_malloc_without`. In other builds a guess costs no test. docs/design.md
// has the table of what was measured. What remains without one is correct, only slower or larger: a test runs a stress
// without each.
#ifndef QY_RT_HEURISTICS_H
#define QY_RT_HEURISTICS_H

#include <stdbool.h>
#include <stdint.h>

#ifndef QY_CFG_WITHOUT
#define QY_CFG_WITHOUT 0
#endif

// X(name, what it does)
#define QY_HEURISTICS(X)                                                                                     \
    X(classes, "a class set that is coarse until a size is common, and learns the sizes that are asked for") \
    X(small_first, "a class's first slabs are small, and stay when they are empty")                          \
    X(colour, "blocks begin at different cache lines, and no power of two of them apart")                    \
    X(carve, "blocks are cut from four pages at once, which one call makes present")                         \
    X(kept, "lists that threads gave up, or left at their end, stay whole with the heap")                    \
    X(reclaim, "before a new slab, lists and empty slabs of other classes go home")                          \
    X(period, "lists that were not used for a period go home; with many threads it is shorter")              \
    X(pending, "frees of another thread's blocks are gathered by slab")                                      \
    X(touched, "what needs pages gets touched ones, also by moving them")                                    \
    X(age, "free memory waits longer where it was needed again soon, until the program rests")               \
    X(early, "free pages go back at once at the peak, at the end of runs, and at the end")                   \
    X(huge_roomy, "a huge object that grows does so by an eighth")

typedef enum qy_heuristic {
#define X(name, what) QY_HEURISTIC_##name,
    QY_HEURISTICS(X)
#undef X
        QY_HEURISTIC_COUNT
} qy_heuristic_t;

// The bits of those that are left out.
extern uint64_t qy_without;

#define QY_WITH(name) (!QY_CFG_WITHOUT || !(qy_without >> QY_HEURISTIC_##name & 1))

// Read QUARRY_WITHOUT. A name that is none ends the process: what is measured would be something else. At start, once.
void qy_without_read(void);

#endif
