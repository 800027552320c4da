// SPDX-License-Identifier: MIT
// 16-malloc.c: where malloc gets it from
//
// Idea: malloc asks the kernel for large pieces and cuts them. That of the C library takes small blocks from the heap,
// which it makes longer by brk, and gives large ones a mapping of their own by mmap. The mapping goes away with its
// block at once; the heap gets shorter only when its end is free. The border between small and large moves: each large
// block that is freed raises it, for a program that did this once will do it again.
//
// Then and now: As in part 3 of the series, which gives the border as 128 KiB to 64 MiB; on 64-bit it stops at 32 MiB.
// Other allocators work differently, Quarry among them (docs/design.md): this chapter is about glibc.
#include "tour.h"

#include <stdlib.h>

static const char *place(void *block) {
    tour_mapping mapping;
    return tour_mapping_of(block, &mapping) && strcmp(mapping.name, "[heap]") == 0 ? "the heap" : "a mapping";
}

int main(void) {
    tour_begin("VmSize VmData");
#ifndef __GLIBC__
    tour_skip("needs glibc: it is about its malloc");
#endif
    free(malloc(1000));  // the heap is made
    // tour: show
    const tour_numbers *start = tour_step("at the start");
    char *small = malloc(64 << 10);
    const char *small_in = place(small);
    tour_step("64 KiB");

    char *large = malloc(1 << 20);
    const char *large_in = place(large);
    const tour_numbers *one = tour_step("1 MiB");
    free(large);
    const tour_numbers *none = tour_step("1 MiB freed");

    char *again = malloc(1 << 20);
    const char *again_in = place(again);
    tour_step("1 MiB again");

    char *largest = malloc(33 << 20);
    free(largest);
    largest = malloc(33 << 20);
    const char *largest_in = place(largest);
    tour_step("33 MiB, freed, again");
    // tour: hide
    tour_must(small && again && largest, "malloc");
    tour_claim(strcmp(small_in, "the heap") == 0, "A block of 64 KiB is in %s.", small_in);
    tour_claim(strcmp(large_in, "a mapping") == 0, "One of 1 MiB is in %s of its own.", large_in);
    tour_near(none->VmSize - one->VmSize, -(1024 + (long)(tour_page() / KIB)), 0,
        "Freeing it gives the mapping back at once: VmSize %s. It was a page larger than the block, for malloc's own "
        "record.",
        tour_size(none->VmSize - one->VmSize));
    tour_claim(
        strcmp(again_in, "the heap") == 0, "The next block of that size is in %s: the border has moved.", again_in);
    tour_claim(strcmp(largest_in, "a mapping") == 0,
        "A block of 33 MiB is in %s, the second time too: the border stops at 32 MiB.", largest_in);
    tour_note("VmSize is %s more than at the start, for the three blocks that are in use.",
        tour_size(tour_find("33 MiB, freed, again")->VmSize - start->VmSize));
    free(largest), free(again), free(small);
    return tour_end();
}
