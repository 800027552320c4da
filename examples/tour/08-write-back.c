// SPDX-License-Identifier: MIT
// 08-write-back.c: dirty pages that have somewhere to go
//
// Idea: A page is dirty while it holds what its source does not. Dirty pages of a shared file can be written back: then
// they are clean, and clean pages can be dropped when memory is short and read again from the file. All other dirty
// memory has no place to go but swap. So "dirty" is harmless here and final elsewhere.
//
// Then and now: As in part 2 of the series. The last page of a file is not full as a rule: the rest of it reads as
// zeros, can be written to, and never gets into the file (part 3), which is shown here as well.
#include "tour.h"

#include <sys/stat.h>

enum { SIZE = 16 << 20,
    TAIL = 100 };

int main(void) {
    tour_begin("map.Rss map.Private_Dirty map.Private_Clean RssFile VmSize");
    int fd = tour_file(SIZE + TAIL);
    // tour: show
    char *p = mmap(NULL, SIZE + TAIL, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    tour_watch(p, SIZE + TAIL);
    const tour_numbers *mapped = tour_step("a file, mapped as shared");

    memset(p, 'w', SIZE);
    char behind_before = p[SIZE + TAIL];  // behind the end of the file, in its last page
    p[SIZE + TAIL] = 'x';
    const tour_numbers *dirty = tour_step("written");

    msync(p, SIZE + TAIL, MS_SYNC);
    const tour_numbers *clean = tour_step("written back (msync)");

    madvise(p, SIZE, MADV_DONTNEED);
    const tour_numbers *dropped = tour_step("dropped, still mapped");

    long sum = tour_read_pages(p, SIZE);
    const tour_numbers *again = tour_step("read again");
    // tour: hide
    tour_must(p != MAP_FAILED, "mmap");
    struct stat about;
    char last[TAIL + 1];
    fstat(fd, &about);
    ssize_t rest = pread(fd, last, sizeof last, SIZE);
    long size = SIZE / KIB, page = (long)(tour_page() / KIB), pages = SIZE / (long)tour_page();
    tour_near(
        dirty->map.Private_Dirty, size + page, page, "Written: %s are dirty.", tour_size(dirty->map.Private_Dirty));
    tour_near(clean->map.Private_Dirty, 0, page, "Written back: %s are dirty.", tour_size(clean->map.Private_Dirty));
    tour_near(clean->map.Rss, dirty->map.Rss, 0, "All of them are still resident: %s.", tour_size(clean->map.Rss));
    tour_near(dropped->map.Rss, page, page, "Dropped: %s are resident.", tour_size(dropped->map.Rss));
    tour_near(dropped->VmSize, mapped->VmSize, 0, "The addresses are still taken: VmSize %s as before.",
        tour_size(dropped->VmSize));
    tour_near(again->map.Rss, clean->map.Rss, page, "Read again they are back: %s.", tour_size(again->map.Rss));
    tour_near(sum, pages * 'w', 0,
        "They hold what was written. It took %ld reads from the disk, for the kernel had kept them in its cache.",
        again->major - dropped->major);
    tour_near(behind_before, 0, 0, "Behind the end of the file, in its last page, was a %d.", behind_before);
    tour_claim(about.st_size == SIZE + TAIL && rest == TAIL,
        "What was written there is in no file: this one has %ld bytes behind the %ld that are whole pages.", (long)rest,
        (long)SIZE);
    return tour_end();
}
