// SPDX-License-Identifier: MIT
// 01-reserve.c: address space is not memory
//
// Idea: A process asks the kernel for addresses, and the kernel notes that they are taken. Memory comes later, page by
// page, when something is written there for the first time: the processor finds no page behind the address and calls
// the kernel, which puts one there and lets the program go on as if nothing had been. That is a page fault. So there
// are two sizes: what is reserved (VIRT in top, VmSize in /proc) and what is resident (RES, VmRSS), and only the second
// one costs anything.
//
// Then and now: As the memory series (part 1, part 2) has it. What it calls the first access is the first write: what a
// read does is the next chapter. The kernel's own tables for the pages are in neither figure; they are VmPTE.
#include "tour.h"

enum { SIZE = 64 << 20 };

int main(void) {
    tour_begin("VmSize VmRSS RssAnon top.DATA VmPTE minor");
    const tour_numbers *start = tour_step("at the start");
    // tour: show
    char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const tour_numbers *reserved = tour_step("64 MiB reserved");

    tour_write_pages(p, SIZE / 2);  // a single byte of each page
    const tour_numbers *half = tour_step("one byte per page of a half");

    memset(p + SIZE / 2, 1, SIZE / 2);  // every byte
    const tour_numbers *whole = tour_step("every byte of the other");

    munmap(p, SIZE);
    const tour_numbers *gone = tour_step("given back");
    // tour: hide
    tour_must(p != MAP_FAILED, "mmap");
    long size = SIZE / KIB, slack = tour_slack(), pages = SIZE / 2 / (long)tour_page();
    long grown = reserved->VmSize - start->VmSize;
    tour_near(grown, size, 0, "Reserving takes addresses at once: VmSize grew by %s, and so did DATA, by %s.",
        tour_size(grown), tour_size(reserved->top.DATA - start->top.DATA));
    long cost = reserved->VmRSS - start->VmRSS;
    tour_near(cost, 0, slack, "It takes no memory: VmRSS grew by %s.", tour_size(cost));
    long anon = half->RssAnon - reserved->RssAnon;
    tour_near(anon, size / 2, slack,
        "One byte in each page of a half made the whole half resident, %s: memory comes in pages of %s.",
        tour_size(anon), tour_size((long)(tour_page() / KIB)));
    long faults = half->minor - reserved->minor;
    tour_near(faults, pages, 64, "The kernel was called for each of its %ld pages: %ld page faults.", pages, faults);
    long other = whole->RssAnon - half->RssAnon;
    tour_near(other, size / 2, slack, "Every byte of the other half cost no more than one byte per page: %s.",
        tour_size(other));
    long tables = whole->VmPTE - reserved->VmPTE;
    tour_note("The tables that lead to these pages took %s besides (VmPTE), which no column of top shows.",
        tour_size(tables));
    long left = gone->VmRSS - start->VmRSS;
    tour_near(left, 0, slack, "munmap gives back both: what is left of VmSize is %s, of VmRSS %s.",
        tour_size(gone->VmSize - start->VmSize), tour_size(left));
    tour_near(whole->top.RES - (whole->RssAnon + whole->RssFile + whole->RssShmem), 0, slack,
        "RES is the sum of three counters: %s anonymous, %s of files, %s shared memory.", tour_size(whole->RssAnon),
        tour_size(whole->RssFile), tour_size(whole->RssShmem));
    return tour_end();
}
