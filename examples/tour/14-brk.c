// SPDX-License-Identifier: MIT
// 14-brk.c: the heap, and mmap beside it
//
// Idea: There are two ways to more private memory. The heap of the kernel is one piece, somewhere behind the program,
// whose end can be moved up and down (brk, sbrk), and nothing but its end. mmap makes as many pieces as one likes, and
// any part of any of them can be unmapped. Whoever has something at the end of the heap keeps all of it.
//
// Then and now: As in part 3 of the series. What has changed is the limit: RLIMIT_DATA (ulimit -d) held for brk alone
// and holds for private mappings by mmap too since Linux 4.7. The heap is far from .bss because addresses are made
// random.
#include "tour.h"

#include <errno.h>
#include <sys/resource.h>

enum { SIZE = 8 << 20 };

int main(void) {
    tour_begin("VmData RssAnon VmSize");
    const tour_numbers *start = tour_step("at the start");
    // tour: show
    char *heap = sbrk(SIZE);
    long sum = tour_read_pages(heap, SIZE);
    tour_write_pages(heap, SIZE);
    const tour_numbers *grown = tour_step("sbrk of 8 MiB, written");
    tour_maps(heap, heap + SIZE);

    brk(heap + SIZE / 2);  // only the end can move
    const tour_numbers *shrunk = tour_step("brk back by a half");

    char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    tour_write_pages(p, SIZE);
    const tour_numbers *mapped = tour_step("mmap of 8 MiB, written");

    munmap(p + SIZE / 4, SIZE / 2);  // the middle
    const tour_numbers *punched = tour_step("its middle unmapped");
    tour_maps(p, p + SIZE);

    munmap(p, SIZE);  // the rest, hole and all, in one call
    tour_step("and the rest");

    struct rlimit limit;
    getrlimit(RLIMIT_DATA, &limit);
    limit.rlim_cur = (rlim_t)tour_step("now")->VmData * KIB + MIB;
    setrlimit(RLIMIT_DATA, &limit);
    errno = 0;
    void *more = sbrk(SIZE);
    int sbrk_error = errno;
    void *also = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    // tour: hide
    tour_must(heap != (void *)-1 && p != MAP_FAILED, "sbrk and mmap");
    tour_mapping mapping;
    bool found = tour_mapping_of(heap, &mapping);
    long size = SIZE / KIB, slack = tour_slack();
    tour_claim(found && strcmp(mapping.name, "[heap]") == 0, "The kernel calls it %s.", mapping.name);
    tour_near(sum, 0, 0, "New memory of the heap is zero: a byte of each page adds up to %ld.", sum);
    tour_near(grown->VmData - start->VmData, size, 0, "VmData grew by %s.", tour_size(grown->VmData - start->VmData));
    tour_near(grown->RssAnon - start->RssAnon, size, slack, "Written, RssAnon grew by %s.",
        tour_size(grown->RssAnon - start->RssAnon));
    tour_near(shrunk->RssAnon - grown->RssAnon, -size / 2, slack,
        "Moving the end back gives memory back at once: RssAnon %s.", tour_size(shrunk->RssAnon - grown->RssAnon));
    tour_near(punched->RssAnon - mapped->RssAnon, -size / 2, slack, "Of a mapping the middle can go alone: RssAnon %s.",
        tour_size(punched->RssAnon - mapped->RssAnon));
    tour_claim(more == (void *)-1 && sbrk_error == ENOMEM, "Beyond RLIMIT_DATA sbrk fails: %s.", strerror(sbrk_error));
    tour_claim(also == MAP_FAILED, "So does mmap of private memory that may be written to.");
    return tour_end();
}
