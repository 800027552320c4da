// SPDX-License-Identifier: MIT
// 07-private-file.c: pages of a file that were written to
//
// Idea: A file that is mapped as private can be written to without changing the file: this is how programs and
// libraries are mapped. A page that was only read is the file's, in the cache that all processes share, and counts as
// RssFile. The first write makes a copy, and the copy belongs to no file any more: it moves to RssAnon, and out of SHR.
//
// Then and now: As in part 2 of the series (there as a transfer from one counter to the other). Such a page cannot be
// dropped and read again: it can only go to swap. What is not said there: reading brings in neighbours as well (a fault
// maps up to 16 pages that are in the cache, more with large folios), writing copies page by page. Whether a change
// that somebody makes in the file is seen through such a mapping is left open, and no program should rely on either.
#include "tour.h"

enum { SIZE = 16 << 20 };

int main(void) {
    tour_begin("RssFile RssAnon top.SHR map.Private_Dirty minor");
    int fd = tour_file(SIZE);
    const tour_numbers *start = tour_step("at the start");
    // tour: show
    char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    tour_watch(p, SIZE);
    const tour_numbers *mapped = tour_step("a file of 16 MiB mapped");

    long sum = tour_read_pages(p, SIZE);
    const tour_numbers *seen = tour_step("each page read");

    tour_write_pages(p, SIZE);
    const tour_numbers *written = tour_step("each page written");

    char in_file;
    pread(fd, &in_file, 1, 0);
    // tour: hide
    tour_must(p != MAP_FAILED, "mmap");
    long size = SIZE / KIB, slack = tour_slack(), pages = SIZE / (long)tour_page();
    tour_near(mapped->VmRSS - start->VmRSS, 0, slack, "Mapping reads nothing: VmRSS + %s.",
        tour_size(mapped->VmRSS - start->VmRSS));
    long shr = seen->top.SHR - mapped->top.SHR;
    tour_near(shr, size, slack, "Read, the file is in SHR: + %s (RssFile + %s).", tour_size(shr),
        tour_size(seen->RssFile - mapped->RssFile));
    long reads = seen->minor - mapped->minor + seen->major - mapped->major, writes = written->minor - seen->minor;
    tour_claim(reads < pages / 2, "Reading %ld pages took %ld faults: neighbours come along.", pages, reads);
    tour_near(sum, pages * 'f', 0, "What was read is what the file holds.");
    long out = written->top.SHR - seen->top.SHR, anon = written->RssAnon - seen->RssAnon;
    tour_near(out, -size, slack, "Written, the pages have left SHR: %s.", tour_size(out));
    tour_near(anon, size, slack, "They are anonymous now: RssAnon + %s.", tour_size(anon));
    tour_near(writes, pages, 64, "Each was copied in a fault of its own: %ld.", writes);
    tour_near(written->VmRSS - seen->VmRSS, 0, slack, "RES did not change by it: %s more.",
        tour_size(written->VmRSS - seen->VmRSS));
    tour_near(in_file, 'f', 0, "The file is as it was: '%c'.", in_file);
    return tour_end();
}
