// SPDX-License-Identifier: MIT
// 21-ksm.c: equal pages that become one
//
// Idea: The kernel can look for pages with equal content and make one of them, which all users share until somebody
// writes (kernel samepage merging, KSM). It does so where a program says that it is worth while (MADV_MERGEABLE) and
// where the system has it on. Rss does not show it, as each user still has the page in its tables; Pss does.
//
// Then and now: As in part 1 of the series. Up to 256 users share one copy, then the next one is made
// (max_page_sharing). Since Linux 6.4 a process can have all of its memory merged (prctl). Merging is off by default:
// who can tell how long a
// write takes learns what others have in memory.
#include "tour.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>

enum { SIZE = 8 << 20 };

static const char SWITCH[] = "/sys/kernel/mm/ksm/run";

static bool set_switch(const char *to) {
    int fd = open(SWITCH, O_WRONLY | O_CLOEXEC);
    bool done = fd >= 0 && write(fd, to, 1) == 1;
    if (fd >= 0) close(fd);
    return done;
}

static void switch_off(void) {
    set_switch("0");
}

static void interrupted(int signal) {
    switch_off();
    _exit(128 + signal);
}

// The system's settings are only changed for those who say so.
static void switch_on(void) {
    long is = tour_number_in(SWITCH, "");
    if (is == 1) return;
    if (is < 0) tour_skip("needs a kernel that merges pages and shows its settings (%s)", SWITCH);
    if (is != 0 || !getenv("QUARRY_TOUR_SYSTEM"))
        tour_skip("needs merging of pages: QUARRY_TOUR_SYSTEM=1 lets this switch it on (%s is %ld)", SWITCH, is);
    if (!set_switch("1")) tour_skip("needs the right to change %s: merging is off", SWITCH);
    // What another program merges in the meantime stays merged, as with every switching off by "0".
    atexit(switch_off);
    for (const int *s = (const int[]){SIGINT, SIGTERM, SIGHUP, SIGQUIT, 0}; *s; s++) signal(*s, interrupted);
}

int main(void) {
    tour_begin("map.Rss map.Pss map.Private_Dirty map.Shared_Dirty minor");
    switch_on();
    // tour: show
    char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    tour_watch(p, SIZE);
    memset(p, 'k', SIZE);  // all pages are equal
    const tour_numbers *full = tour_step("8 MiB of equal pages");

    int mergeable = madvise(p, SIZE, MADV_MERGEABLE);
    // tour: hide
    if (mergeable != 0) tour_skip("needs a kernel that merges pages");
    const long size = SIZE / KIB, pages = SIZE / (long)tour_page(), page = (long)(tour_page() / KIB);
    for (int i = 0; i < 80 && tour_number_in("/proc/self/ksm_merging_pages", "") < pages; i++)
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    // tour: show
    // ... some seconds later
    const tour_numbers *merged = tour_step("merged");

    tour_write_pages(p, SIZE / 4);
    const tour_numbers *written = tour_step("a quarter written");
    // tour: hide
    tour_near(
        merged->map.Rss, full->map.Rss, 0, "Merged or not, Rss of the mapping is %s.", tour_size(merged->map.Rss));
    tour_near(merged->map.Pss, 0, size / 16, "Pss fell from %s to %s: that is what the %ld pages take now.",
        tour_size(full->map.Pss), tour_size(merged->map.Pss), pages);
    tour_near(written->minor - merged->minor, pages / 4, 64,
        "A byte written to each page of a quarter was %ld page faults.", written->minor - merged->minor);
    tour_near(written->map.Pss - merged->map.Pss, size / 4, size / 16,
        "It gave each a copy of its own again: Pss + %s.", tour_size(written->map.Pss - merged->map.Pss));
    tour_note("Up to %ld users share a copy here, so %ld copies of %s served all.",
        tour_number_in("/sys/kernel/mm/ksm/max_page_sharing", ""), (merged->map.Pss + page - 1) / page,
        tour_size(page));
    return tour_end();
}
