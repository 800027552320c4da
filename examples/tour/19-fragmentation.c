// SPDX-License-Identifier: MIT
// 19-fragmentation.c: one block that keeps a heap
//
// Idea: The heap can only get shorter at its end. A single block that lives there keeps everything before it, however
// much of that is free: free has returned it to malloc, not to the kernel. To the system the process looks as large as
// ever, and to the programmer it looks like a leak. It is none: the next blocks are made of it.
//
// Then and now: As in part 3 of the series. What is not in it: glibc's malloc_trim looks for whole free pages inside
// the heap and gives them back by madvise, without shortening it. Allocators that keep blocks of one size together and
// give back unused pages by themselves do not wait to be asked; Quarry does so after a while (docs/design.md).
#include "tour.h"

#include <malloc.h>
#include <stdlib.h>

enum { COUNT = 8192,
    SIZE = 4 << 10 };

static char *block[COUNT];

int main(void) {
    tour_begin("RssAnon VmData");
#ifndef __GLIBC__
    tour_skip("needs glibc: it is about its malloc");
#else
    const tour_numbers *start = tour_step("at the start");
    // tour: show
    for (int i = 0; i < COUNT; i++) memset(block[i] = malloc(SIZE), 1, SIZE);
    const tour_numbers *full = tour_step("8192 blocks of 4 KiB");

    for (int i = 0; i < COUNT - 1; i++) free(block[i]);  // all but the last
    const tour_numbers *pinned = tour_step("all but the last freed");

    char *other[16];
    for (int i = 0; i < 16; i++) memset(other[i] = malloc(100 << 10), 2, 100 << 10);
    const tour_numbers *reused = tour_step("16 new ones of 100 KiB");
    for (int i = 0; i < 16; i++) free(other[i]);

    malloc_trim(0);
    const tour_numbers *trimmed = tour_step("malloc_trim");

    free(block[COUNT - 1]);
    const tour_numbers *last = tour_step("the last freed");
    // tour: hide
    long payload = COUNT * (SIZE / (long)KIB), slack = tour_slack() + payload / 100;
    tour_near(full->RssAnon - start->RssAnon, payload, slack, "The blocks take %s.",
        tour_size(full->RssAnon - start->RssAnon));
    tour_near(pinned->RssAnon, full->RssAnon, slack, "All but one of %d are free, and %s are resident as before.",
        COUNT, tour_size(pinned->RssAnon));
    tour_near(pinned->VmData, full->VmData, 0, "The heap is as long as it was: VmData %s.", tour_size(pinned->VmData));
    long grown = reused->RssAnon - pinned->RssAnon;
    tour_near(grown, 0, slack, "16 new blocks of 100 KiB were made of what is free: RssAnon + %s.", tour_size(grown));
    tour_near(trimmed->RssAnon - start->RssAnon, 0, slack,
        "malloc_trim gave back the pages in between: RssAnon is %s more than at the start.",
        tour_size(trimmed->RssAnon - start->RssAnon));
    tour_near(trimmed->VmData - start->VmData, full->VmData - start->VmData, 256, "The heap is still %s longer.",
        tour_size(trimmed->VmData - start->VmData));
    tour_near(last->VmData - start->VmData, 0, 512,
        "When the last block was freed, the heap became short again: VmData + %s.",
        tour_size(last->VmData - start->VmData));
    return tour_end();
#endif
}
