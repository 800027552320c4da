// SPDX-License-Identifier: MIT
// 02-zero-page.c: reading memory that nobody wrote
//
// Idea: Memory that was never written is all zeros. To let a program read zeros no memory is needed: the kernel has one
// page that is always zero and puts it, read-only, wherever something is read before it is written. A later write finds
// the page read-only, and only then a page of its own is made. So a read costs a page fault, yet nothing that counts as
// resident.
//
// Then and now: The document on calloc says that the kernel may use its zero page when a read faults, and it does: for
// small pages always. Where huge pages are on, a huge zero page of 2 MiB serves 512 pages with one fault; this chapter
// has them off. The page is in no counter of the process, neither in RssAnon nor in Rss or Pss of the mapping.
#include "tour.h"

enum { SIZE = 32 << 20 };

int main(void) {
    tour_begin("RssAnon map.Rss minor");
    tour_step("at the start");
    // tour: show
    char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    tour_watch(p, SIZE);
    const tour_numbers *reserved = tour_step("32 MiB reserved");

    long sum = tour_read_pages(p, SIZE);
    const tour_numbers *seen = tour_step("a byte of each page read");

    tour_write_pages(p, SIZE);
    const tour_numbers *written = tour_step("a byte of each written");
    // tour: hide
    tour_must(p != MAP_FAILED, "mmap");
    long pages = SIZE / (long)tour_page(), slack = tour_slack();
    tour_near(sum, 0, 0, "All %ld bytes that were read are 0.", pages);
    long faults = seen->minor - reserved->minor, cost = seen->RssAnon - reserved->RssAnon;
    tour_near(faults, pages, 64, "Reading called the kernel once for each page, %ld times.", faults);
    tour_near(cost, 0, slack, "It left nothing behind: RssAnon grew by %s, Rss of the mapping is %s.", tour_size(cost),
        tour_size(seen->map.Rss));
    long again = written->minor - seen->minor, grown = written->RssAnon - seen->RssAnon;
    tour_near(again, pages, 64,
        "Writing called it again for each page, %ld times, for the zero page may not be written.", again);
    tour_near(grown, SIZE / KIB, slack, "Now each page is the process's own: RssAnon grew by %s.", tour_size(grown));
    return tour_end();
}
