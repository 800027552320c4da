// SPDX-License-Identifier: MIT
// 20-huge.c: pages of 2 MiB
//
// Idea: Each page has an entry in the processor's tables and costs a page fault. With large pages both get rare: where
// the kernel may, one fault brings 2 MiB at once (transparent huge pages). The price is the same thing seen from the
// other side: a program that writes one byte in each 2 MiB has all of it resident.
//
// Then and now: The documents know pages of 4 KiB only, "usually". Whether memory gets huge pages by itself is a
// setting of the system (/sys/kernel/mm/transparent_hugepage/enabled): always, madvise (who asks), never. Giving back a
// part of a huge page breaks it: the rest is small pages from then on, until the kernel joins them again.
#include "tour.h"

#include <sys/prctl.h>

#define HUGE_PAGE (2 * MIB)

enum { COUNT = 16 };

int main(void) {
    tour_begin("RssAnon map.AnonHugePages minor VmPTE");
    char setting[64] = "";
    int fd = open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, setting, sizeof setting - 1) <= 0) tour_skip("needs a kernel with transparent huge pages");
    if (strstr(setting, "[never]"))
        tour_skip("needs transparent huge pages, which are off (/sys/kernel/mm/transparent_hugepage/enabled)");
    if (tour_number_in("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "") != (long)HUGE_PAGE)
        tour_skip("needs huge pages of 2 MiB");
    tour_must(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0) == 0, "prctl");
    const size_t size = COUNT * HUGE_PAGE;
    char *all = mmap(NULL, 2 * size + 2 * HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    tour_must(all != MAP_FAILED, "mmap");
    char *p = (char *)(((uintptr_t)all + HUGE_PAGE - 1) & -HUGE_PAGE), *q = p + size;
    // tour: show
    // p and q: 32 MiB each, on a boundary of 2 MiB
    madvise(p, size, MADV_NOHUGEPAGE);
    madvise(q, size, MADV_HUGEPAGE);
    const tour_numbers *start = tour_step("at the start");

    for (int i = 0; i < COUNT; i++) p[i * HUGE_PAGE] = 1;
    const tour_numbers *small = tour_step("16 bytes, small pages");

    tour_watch(q, size);
    for (int i = 0; i < COUNT; i++) q[i * HUGE_PAGE] = 1;
    const tour_numbers *huge = tour_step("16 bytes, huge pages");

    tour_write_pages(q, size);
    const tour_numbers *written = tour_step("every page of them");

    for (int i = 0; i < COUNT; i++) madvise(q + i * HUGE_PAGE, tour_page(), MADV_DONTNEED);
    const tour_numbers *broken = tour_step("4 KiB of each given back");
    // tour: hide
    long kib = (long)(size / KIB), page = (long)(tour_page() / KIB), slack = tour_slack();
    if (huge->map.AnonHugePages < kib / 2)
        tour_skip("needs more huge pages that are free: the kernel found %s of %s", tour_size(huge->map.AnonHugePages),
            tour_size(kib));
    tour_near(small->RssAnon - start->RssAnon, COUNT * page, slack, "16 bytes in 32 MiB cost %s in small pages.",
        tour_size(small->RssAnon - start->RssAnon));
    // A fault for which there is no huge page gets a small one, so it may be less.
    tour_near(huge->RssAnon - small->RssAnon, kib, kib / 2 + slack, "The same in huge pages: %s, of which %s are huge.",
        tour_size(huge->RssAnon - small->RssAnon), tour_size(huge->map.AnonHugePages));
    long faults = written->minor - small->minor, pages = kib / page;
    tour_claim(faults < pages / 2 + 64, "Writing to all %ld pages of them took %ld page faults.", pages, faults);
    tour_near(broken->map.AnonHugePages, 0, 0, "With a piece of each given back, %s are huge.",
        tour_size(broken->map.AnonHugePages));
    tour_near(written->map.Rss - broken->map.Rss, COUNT * page, 0, "%s less are resident.",
        tour_size(written->map.Rss - broken->map.Rss));
    return tour_end();
}
