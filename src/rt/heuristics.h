// SPDX-License-Identifier: MIT
// heuristics.h: the guesses of the heap, by name. Each costs some code and saves time or memory in programs that do
// what it guesses.
//
// A build with QY_CFG_WITHOUT=1 leaves out those that QUARRY_WITHOUT names ("colour,depot"), to show what each is
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
#define QY_HEURISTICS(X)                                                                          \
    X(coarse, "a class set that is coarse until a size is common")                                \
    X(learn, "classes of just the size that is asked for")                                        \
    X(small_first, "eight small slabs first of each class")                                       \
    X(odd, "an odd number of blocks in a slab")                                                   \
    X(colour, "blocks above 8 KiB and runs begin at different cache lines")                       \
    X(order, "slabs with few free blocks serve last")                                             \
    X(four_pages, "blocks are cut from four pages at once where a class has some slabs")          \
    X(populate, "one call makes the pages present that blocks are cut from")                      \
    X(seldom, "a list that is found balanced is looked at half as often")                         \
    X(depot, "generations that a thread gave up stay whole for its next malloc")                  \
    X(depot_order, "many more of them stay if they are in the order of their addresses")          \
    X(parked, "the lists of a thread that ends stay with its heap")                               \
    X(reclaim, "before a new slab, lists and empty slabs of other classes go home")               \
    X(period, "lists that were not used for a period go home")                                    \
    X(many_threads, "with many threads, periods and generations are shorter")                     \
    X(keep_empty, "an empty slab of a class stays, and all of its small first ones")              \
    X(pending, "frees of another thread's blocks are gathered by slab")                           \
    X(dirty_first, "slabs and runs lie where most pages are touched")                             \
    X(move, "a long run gets the pages of free chunks that lie elsewhere")                        \
    X(age, "free memory waits longer where it was needed again soon")                             \
    X(rest, "in a program that takes no pages, free memory waits no longer than the option says") \
    X(growth, "at the peak, free pages go back before new ones come")                             \
    X(run_old, "pages of a run that lived long go back at once, so many a second")                \
    X(run_first, "pages of the first run of its size go back at once")                            \
    X(ending, "a process that ends gives back a part of its waste")                               \
    X(huge_roomy, "a huge object that grows does so by an eighth")                                \
    X(young, "a process of one thread gives back far too much at once, and gets its helper after that")

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
