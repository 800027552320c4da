// SPDX-License-Identifier: MIT
// 17-calloc.c: zeros for nothing, and zeros that cost
//
// Idea: calloc has to return zeros. Memory that comes fresh from the kernel is zero already, so nothing needs to be
// written, and what is not written is not resident. Memory that was used before has to be cleared, and then calloc
// costs what malloc and memset cost. "calloc is faster" holds for the first case, as long as nobody writes into the
// block.
//
// Then and now: As in "malloc+memset vs calloc". Its times are those of `quarry bench zero`; here is what is behind
// them: page faults and resident memory. How the block comes to be used again is glibc's way (see malloc before this).
#include "tour.h"

#include <stdlib.h>

enum { SIZE = 48 << 20,
    REUSED = 1 << 20 };

int main(void) {
    tour_begin("RssAnon minor VmData");
#ifndef __GLIBC__
    tour_skip("needs glibc: it is about its malloc");
#endif
    const tour_numbers *start = tour_step("at the start");
    // tour: show
    char *block = malloc(SIZE);
    memset(block, 0, SIZE);
    const tour_numbers *set = tour_step("malloc and memset");
    free(block);
    const tour_numbers *freed = tour_step("freed");

    block = calloc(1, SIZE);
    const tour_numbers *fresh = tour_step("calloc");

    long sum = tour_read_pages(block, SIZE);
    const tour_numbers *seen = tour_step("a byte per page read");

    tour_write_pages(block, SIZE);
    const tour_numbers *written = tour_step("a byte per page written");
    free(block);

    free(malloc(REUSED));  // from now on blocks of 1 MiB come from the heap
    block = malloc(REUSED);
    memset(block, 'x', REUSED);
    free(block);
    const tour_numbers *before = tour_step("1 MiB used and freed");
    char *reused = calloc(1, REUSED);
    const tour_numbers *after = tour_step("calloc gets it again");
    // tour: hide
    tour_must(reused, "calloc");
    long size = SIZE / KIB, slack = tour_slack(), pages = SIZE / (long)tour_page(), dirty = 0;
    for (size_t i = 0; i < REUSED; i++) dirty += reused[i] != 0;
    tour_near(set->RssAnon - start->RssAnon, size, slack, "malloc and memset: %s resident, page faults: %ld.",
        tour_size(set->RssAnon - start->RssAnon), set->minor - start->minor);
    tour_near(fresh->RssAnon - freed->RssAnon, 0, slack,
        "calloc of as much: %s resident, page faults: %ld. It has written nothing.",
        tour_size(fresh->RssAnon - freed->RssAnon), fresh->minor - freed->minor);
    tour_near(seen->minor - fresh->minor, pages, 64, "Reading it made %ld page faults and took %s: the zero page.",
        seen->minor - fresh->minor, tour_size(seen->RssAnon - fresh->RssAnon));
    tour_near(sum, 0, 0, "It is all zeros.");
    tour_near(written->RssAnon - seen->RssAnon, size, slack,
        "Writing to it costs what it cost malloc and memset: %s, page faults: %ld.",
        tour_size(written->RssAnon - seen->RssAnon), written->minor - seen->minor);
    tour_near(after->minor - before->minor, 0, 16,
        "A block that was used before came back without the kernel, page faults: %ld.", after->minor - before->minor);
    tour_near(dirty, 0, 0, "All of its %s had held 'x' and %ld bytes do now: here calloc had to clear it.",
        tour_size(REUSED / (long)KIB), dirty);
    tour_claim(reused == block, "It is the same memory, at %p.", (void *)reused);
    free(reused);
    return tour_end();
}
