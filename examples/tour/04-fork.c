// SPDX-License-Identifier: MIT
// 04-fork.c: fork copies nothing until somebody writes
//
// Idea: fork makes a second process with the same memory. No page is copied: both have the same pages, marked so that
// the first to write to one gets a copy of its own (copy-on-write). RES counts such a page in both processes, so the
// sum of all RES is more than what is used; Pss counts it as a half in each, and sums of Pss are right. A child is thus
// a snapshot: it sees the memory as it was, however the parent goes on, at the price of what is written in the
// meantime.
//
// Then and now: As in part 1 of the series, which speaks of private memory: what is mapped as shared is not part of the
// snapshot, and is the way to bring a result back (here, beside the exit status). Not everything is free: the child's
// tables of pages are made at once, which takes time in proportion to what is resident.
#include "tour.h"

enum { SIZE = 32 << 20 };

int main(void) {
    tour_begin("VmRSS map.Rss map.Pss map.Private_Dirty minor");
    // tour: show
    char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long *result = mmap(NULL, tour_page(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    tour_watch(p, SIZE);
    memset(p, 1, SIZE);
    const tour_numbers *alone = tour_step("32 MiB, one process");

    pid_t child = tour_fork("child");
    if (child == 0) {
        tour_step("the child, new");
        tour_pause();
        tour_write_pages(p, SIZE / 4);  // 1 over 1: it is the write that counts
        tour_step("the child wrote 8 MiB");
        tour_pause();
        *result = p[SIZE - 1];  // the snapshot: what was there at fork
        _exit(7);
    }
    tour_wait(child);
    const tour_numbers *both = tour_step("after fork");

    tour_continue(child);
    tour_wait(child);
    const tour_numbers *copied = tour_step("after the child's writes");

    p[SIZE - 1] = 2;  // the same address in both, different values from now on
    tour_continue(child);
    int status = tour_wait(child);
    const tour_numbers *last = tour_step("after its end");
    // tour: hide
    tour_must(p != MAP_FAILED && result != MAP_FAILED, "mmap");
    const tour_numbers *born = tour_find("the child, new"), *wrote = tour_find("the child wrote 8 MiB");
    tour_must(born && wrote, "steps of the child");
    long size = SIZE / KIB, page = (long)(tour_page() / KIB), slack = 32 * page, pages = SIZE / 4 / (long)tour_page();
    tour_near(both->map.Pss, size / 2, slack,
        "After fork each of the two has %s resident, and Pss of each is %s: half of it.", tour_size(both->map.Rss),
        tour_size(both->map.Pss));
    tour_near(both->map.Rss + born->map.Rss, 2 * size, slack, "The two Rss are %s together, for %s of memory.",
        tour_size(both->map.Rss + born->map.Rss), tour_size(both->map.Pss + born->map.Pss));
    tour_near(wrote->map.Private_Dirty, size / 4, slack,
        "The child wrote a byte to each of %ld pages, and %s were copied for it.", pages,
        tour_size(wrote->map.Private_Dirty));
    long faults = wrote->minor - born->minor;
    tour_near(faults, pages, 64, "That took %ld page faults, one for each page and a few for its own work.", faults);
    tour_near(copied->map.Private_Dirty, size / 4, slack, "What the child has copies of is now the parent's alone: %s.",
        tour_size(copied->map.Private_Dirty));
    tour_near(copied->map.Pss + wrote->map.Pss, size + size / 4, slack, "All memory of the two is the sum of Pss: %s.",
        tour_size(copied->map.Pss + wrote->map.Pss));
    tour_near(copied->map.Rss, alone->map.Rss, slack, "Rss of the parent has told nothing of all this: %s throughout.",
        tour_size(copied->map.Rss));
    tour_near(*result, 1, 0, "The parent wrote 2 where the child still read %ld: one address, two values.", *result);
    tour_near(status, 7, 0, "The child's results came back by its exit status (%d) and by a shared page (%ld).", status,
        *result);
    tour_near(last->map.Pss, size, slack, "With the child gone, Pss is Rss again: %s.", tour_size(last->map.Pss));
    return tour_end();
}
