// SPDX-License-Identifier: MIT
// 18-overhead.c: what a small block costs
//
// Idea: malloc keeps its own records, and blocks begin at multiples of 16. With glibc the record is 8 bytes before each
// block, and no block has less than 24 bytes: a block of one byte takes 32. For many small blocks this is the larger
// part of the memory. The kernel sees none of it: it is asked for 132 KiB at a time.
//
// Then and now: The series (part 3) has at least 8 bytes for each block, and so it is for a block of 24 bytes; rounding
// makes it more for others. Allocators with size classes have no record beside the block: what Quarry needs is in
// docs/design.md, and `quarry bench list` compares.
#include "tour.h"

#include <stdlib.h>

enum { COUNT = 200000 };

typedef struct filled {
    long resident;  // bytes for each block
    long moves;     // of the end of the heap
} filled;

static const tour_numbers *last;

// tour: show
static filled fill(size_t size, const char *name) {
    filled f = {0};
    char *end = sbrk(0);
    for (int i = 0; i < COUNT; i++) {
        char *block = malloc(size);
        tour_must(block, "malloc");
        *block = 1;  // never freed: only the size counts here
        f.moves += sbrk(0) != end;
        end = sbrk(0);
    }
    const tour_numbers *now = tour_step(name);
    // tour: hide
    f.resident = ((now->RssAnon - last->RssAnon) * (long)KIB + COUNT / 2) / COUNT;
    last = now;
    // tour: show
    return f;
}
// tour: hide

int main(void) {
    tour_begin("RssAnon VmData minor");
#ifndef __GLIBC__
    tour_skip("needs glibc: it is about its malloc");
#endif
    last = tour_step("at the start");
    // tour: show

    filled one = fill(1, "200 000 blocks of 1 byte");
    filled fit = fill(24, "200 000 of 24 bytes");
    filled more = fill(25, "200 000 of 25 bytes");
    // tour: hide
    long slack = tour_slack() * (long)KIB / COUNT + 1;
    tour_near(one.resident, 32, slack, "A block of 1 byte takes %ld bytes.", one.resident);
    tour_near(fit.resident, 32, slack, "One of 24 bytes takes %ld: 8 bytes for malloc.", fit.resident);
    tour_near(more.resident, 48, slack, "One of 25 bytes takes %ld: sizes go by 16.", more.resident);
    tour_claim(one.moves > 0 && one.moves < COUNT / 1000, "For %d blocks malloc went to the kernel %ld times.", COUNT,
        one.moves);
    return tour_end();
}
