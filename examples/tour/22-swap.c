// SPDX-License-Identifier: MIT
// 22-swap.c: memory that is elsewhere
//
// Idea: When memory is short, the kernel writes pages that have no file behind them to swap space and takes them from
// the process. Addresses and content stay: whoever reads them waits until they are back. That is a page fault, and a
// major one if it waits for the disk. Here no shortage is made: a program may ask for its pages to be swapped out
// (MADV_PAGEOUT), and as memory is not short, the kernel may still have a copy at hand when they are read again.
//
// Then and now: As in parts 1 and 2 of the series. SWAP in top is VmSwap, a true count; VIRT less RES, which old
// versions of top showed under this name, is something else, as the figures say. MADV_PAGEOUT is younger (Linux 5.4). A
// swap that is compressed memory (zram, zswap) needs no disk. The run that is shown where there is no swap is of a
// virtual machine in which the program may have 12 MiB.
#include "tour.h"

#include <time.h>

enum { SIZE = 16 << 20 };

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

// Different in each page, so that it has to be stored.
static unsigned char content(size_t at) {
    return (unsigned char)((at * 2654435761u) >> 13);
}

int main(void) {
    tour_begin("RssAnon VmSwap VmSize minor major");
    if (tour_number_in("/proc/meminfo", "SwapFree:") < 2 * SIZE / (long)KIB)
        tour_skip("needs swap space that is free (swapon)");
    const tour_numbers *start = tour_step("at the start");
    // tour: show
    unsigned char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t at = 0; at < SIZE; at++) p[at] = content(at);
    const tour_numbers *full = tour_step("16 MiB written");

    int can = madvise(p, SIZE, MADV_PAGEOUT);
    // tour: hide
    if (can != 0) tour_skip("needs a kernel that swaps out on request (MADV_PAGEOUT)");
    for (int i = 0; i < 20 && tour_number_in("/proc/self/status", "VmSwap:") < SIZE / (long)KIB; i++)
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    // tour: show
    const tour_numbers *out = tour_step("swapped out");

    long wrong = 0;
    for (size_t at = 0; at < SIZE; at++) wrong += p[at] != content(at);
    const tour_numbers *back = tour_step("read again");
    // tour: hide
    // Pages that the kernel is busy with stay. Where memory is short already, some were out before they were asked to
    // go, and not all can be back at a time.
    long size = SIZE / KIB, slack = size / 4 + tour_slack();
    tour_near(out->VmSwap - start->VmSwap, size, slack, "%s are swapped out (VmSwap).",
        tour_size(out->VmSwap - start->VmSwap));
    tour_near(out->RssAnon - start->RssAnon, 0, slack, "RssAnon is %s.", tour_size(out->RssAnon));
    tour_near(out->VmSize, full->VmSize, 0, "VmSize is %s as before.", tour_size(out->VmSize));
    tour_near(wrong, 0, 0, "All content is as it was: %ld bytes differ.", wrong);
    long minor = back->minor - out->minor, major = back->major - out->major;
    tour_claim(minor + major > 0,
        "It came back in %ld page faults: %ld waited for the disk, for %ld the kernel still had a copy.", minor + major,
        major, minor);
    tour_claim(back->RssAnon > out->RssAnon + size / 4, "What was read is resident again: RssAnon is %s.",
        tour_size(back->RssAnon));
    tour_note("At the start VIRT less RES was %s, and nothing was swapped out: that difference is no measure of swap.",
        tour_size(start->top.VIRT - start->top.RES));
    return tour_end();
}
