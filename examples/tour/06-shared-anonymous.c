// SPDX-License-Identifier: MIT
// 06-shared-anonymous.c: 50 MiB in the column SHR
//
// Idea: Memory that is shared but of no file has to be found by two processes, so the kernel makes a file for it: in a
// file system in memory, without a name, gone with its last user. Only a child can have it, by inheriting the mapping.
// Being a file it is counted with files: top shows it in SHR, though nobody may be sharing it.
//
// Then and now: This is the test program of the memory series (part 2), and top still shows 50m in RES and in SHR. Two
// things have changed. The kernel counts these pages apart since Linux 4.5 (RssShmem), so SHR is RssFile + RssShmem.
// And the manual of top, which said that SHR may hold memory that is not resident, was wrong then and can be seen to
// be: reserving adds nothing.
#include "tour.h"

enum { SIZE = 50 << 20 };

int main(void) {
    tour_begin("top.VIRT top.RES top.SHR RssShmem map.Pss map.Private_Dirty map.Anonymous");
    const tour_numbers *start = tour_step("at the start");
    // tour: show
    char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_SHARED, -1, 0);
    tour_watch(p, SIZE);
    const tour_numbers *reserved = tour_step("50 MiB reserved");

    for (size_t i = 0; i < SIZE / tour_page(); i++) p[i * tour_page()] = 1;
    const tour_numbers *touched = tour_step("every page written");
    tour_maps(p, p + SIZE);

    pid_t child = tour_fork("child");
    if (child == 0) {
        long sum = tour_read_pages(p, SIZE);  // an inherited page is in its tables when it was read there, too
        tour_step("a child that reads it");
        _exit(sum == (long)(SIZE / tour_page()) ? 0 : 1);
    }
    int status = tour_wait(child);
    // tour: hide
    tour_must(p != MAP_FAILED, "mmap");
    const tour_numbers *inherited = tour_find("a child that reads it");
    tour_must(inherited, "the child's step");
    long size = SIZE / KIB, slack = tour_slack();
    long before = reserved->top.SHR - start->top.SHR, shr = touched->top.SHR - reserved->top.SHR;
    tour_near(before, 0, slack, "Reserved and not touched, it is not in SHR: + %s.", tour_size(before));
    tour_near(shr, size, slack, "Each page written: SHR + %s, RES + %s.", tour_size(shr),
        tour_size(touched->top.RES - reserved->top.RES));
    tour_near(touched->RssShmem - reserved->RssShmem, size, slack, "The counter behind it is RssShmem: + %s.",
        tour_size(touched->RssShmem - reserved->RssShmem));
    tour_near(touched->map.Private_Dirty, size, 0,
        "Nobody shares it yet, so the kernel calls it private and dirty: Private_Dirty %s.",
        tour_size(touched->map.Private_Dirty));
    tour_near(touched->map.Anonymous, 0, 0, "To the kernel it is a file's, so Anonymous is %s.",
        tour_size(touched->map.Anonymous));
    tour_mapping mapping;
    bool found = tour_mapping_of(p, &mapping);
    tour_claim(found && strcmp(mapping.modes, "rw-s") == 0 && mapping.inode != 0 &&
                   strcmp(mapping.name, "/dev/zero (deleted)") == 0,
        "In /proc/self/maps it is a file that has been deleted: %s, modes %s, inode %lu.", mapping.name, mapping.modes,
        mapping.inode);
    tour_near(status, 0, 0, "A child that inherits the mapping finds the content in it.");
    tour_near(inherited->map.Pss, size / 2, 64, "Then two have it, and Pss in the child is half of the size: %s.",
        tour_size(inherited->map.Pss));
    return tour_end();
}
