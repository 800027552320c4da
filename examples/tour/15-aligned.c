// SPDX-License-Identifier: MIT
// 15-aligned.c: a file on a boundary of 256 MiB
//
// Idea: mmap aligns to a page, no more. Who wants a larger alignment reserves twice the size, which costs nothing,
// keeps the part that lies right and unmaps what is before and behind. A file is then put over it with MAP_FIXED, which
// replaces what is mapped there. With such addresses the start of a region is found by clearing the lower bits of any
// pointer into it.
//
// Then and now: The function of part 3 of the series, as it is there. Replacing is done in one step by the kernel: at
// no moment are the addresses free for another thread's mmap. In Quarry: quarry_map_aligned (`include/quarry/pages.h`).
#include "tour.h"

#define ALIGNMENT (256 * MIB)

int main(void) {
    tour_begin("VmSize VmRSS");
    int fd = tour_file(tour_page());
    tour_must(ftruncate(fd, ALIGNMENT) == 0, "ftruncate");  // a hole: it takes no disk
    const tour_numbers *start = tour_step("at the start");
    // tour: show
    char *p = mmap(NULL, 2 * ALIGNMENT, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const tour_numbers *twice = tour_step("512 MiB reserved");

    char *aligned = (char *)(((uintptr_t)p + ALIGNMENT - 1) & -ALIGNMENT);
    if (aligned > p) munmap(p, (size_t)(aligned - p));
    munmap(aligned + ALIGNMENT, (size_t)(p + ALIGNMENT - aligned));
    const tour_numbers *trimmed = tour_step("head and tail unmapped");

    char *file = mmap(aligned, ALIGNMENT, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
    const tour_numbers *placed = tour_step("a file in its place");
    tour_maps(file, file + ALIGNMENT);
    // tour: hide
    tour_must(p != MAP_FAILED && file != MAP_FAILED, "mmap");
    char first = file[0], later = file[ALIGNMENT - 1];
    // tour: show

    munmap(file, ALIGNMENT);  // one call
    const tour_numbers *gone = tour_step("unmapped");
    // tour: hide
    long size = ALIGNMENT / KIB;
    tour_near(twice->VmSize - start->VmSize, 2 * size, 0, "Reserving twice the size made VmSize grow by %s.",
        tour_size(twice->VmSize - start->VmSize));
    tour_near(
        twice->VmRSS - start->VmRSS, 0, tour_slack(), "VmRSS grew by %s.", tour_size(twice->VmRSS - start->VmRSS));
    tour_near(trimmed->VmSize - start->VmSize, size, 0, "Without head and tail it is %s: nothing is lost.",
        tour_size(trimmed->VmSize - start->VmSize));
    tour_claim(file == aligned && (uintptr_t)file % ALIGNMENT == 0, "The file is at %p: address modulo 256 MiB is %zu.",
        (void *)file, (size_t)((uintptr_t)file % ALIGNMENT));
    tour_near(placed->VmSize, trimmed->VmSize, 0, "It replaced what was there: VmSize is %s as before.",
        tour_size(placed->VmSize));
    tour_claim(
        first == 'f' && later == 0, "Its content is to be read: '%c' at the start, %d at the end.", first, later);
    tour_near(gone->VmSize, start->VmSize, 0, "One munmap took all away: VmSize %s as at the start.",
        tour_size(gone->VmSize));
    return tour_end();
}
