// SPDX-License-Identifier: MIT
// 10-overcommit.c: more than there is
//
// Idea: As reserving costs nothing, the kernel lets programs reserve more than there is, and counts on most of it never
// being touched. How far it goes is a setting of the system: vm.overcommit_memory 0 refuses a single request that is
// larger than all memory and swap, 1 refuses nothing, 2 adds up all promises and keeps them. A mapping can also say
// itself that nothing shall be set aside for it (MAP_NORESERVE, mode R in pmap), which 2 does not care about.
//
// Then and now: Part 1 of the series says that the kernel lets you. It does by default; the price is that memory may
// run out at a write, when there is nobody to return an error to, and the kernel ends a process instead. VIRT and DATA
// say nothing about use: a program under AddressSanitizer reserves terabytes (part 2).
#include "tour.h"

#include <sys/resource.h>

int main(void) {
    tour_begin("VmSize top.DATA VmRSS");
    long mode = tour_number_in("/proc/sys/vm/overcommit_memory", "");
    long memory = tour_number_in("/proc/meminfo", "MemTotal:") + tour_number_in("/proc/meminfo", "SwapTotal:");
    struct rlimit limit;
    getrlimit(RLIMIT_AS, &limit);
    if (limit.rlim_cur != RLIM_INFINITY) tour_skip("needs address space without a limit (ulimit -v unlimited)");
    if (mode < 0 || memory < 0) tour_skip("needs a /proc that says how the system promises memory");
    size_t all = (size_t)memory * KIB / (2 * MIB) * (2 * MIB);
    const int rw = PROT_READ | PROT_WRITE, anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
    const tour_numbers *start = tour_step("at the start");
    // tour: show
    // all: memory and swap of this machine
    char *twice = mmap(NULL, 2 * all, rw, anonymous, -1, 0);

    char *unreserved = mmap(NULL, 2 * all, rw, anonymous | MAP_NORESERVE, -1, 0);
    const tour_numbers *large = tour_step("twice all memory, NORESERVE");

    int pieces = 0;
    char *piece[4];
    while (pieces < 4 && (piece[pieces] = mmap(NULL, all / 2, rw, anonymous, -1, 0)) != MAP_FAILED) pieces++;
    const tour_numbers *summed = tour_step("and four halves, one by one");
    // tour: hide
    tour_note("This machine has %s of memory and swap, and vm.overcommit_memory is %ld.", tour_size(memory), mode);
    if (mode == 1) tour_claim(twice != MAP_FAILED, "Twice of that in one request was granted.");
    else tour_claim(twice == MAP_FAILED, "Twice of that in one request was refused.");
    if (mode == 2) {
        tour_claim(unreserved == MAP_FAILED, "MAP_NORESERVE makes no difference: refused as well.");
        tour_claim(pieces < 4, "Of four halves, %d were granted.", pieces);
    } else {
        long grown = large->VmSize - start->VmSize, expected = (long)(2 * all / KIB) * (mode == 1 ? 2 : 1);
        tour_claim(unreserved != MAP_FAILED, "With MAP_NORESERVE it was granted.");
        tour_near(grown, expected, 0, "VmSize grew by %s.", tour_size(grown));
        tour_near(
            pieces, 4, 0, "%d requests for a half of all memory each were granted: each is looked at alone.", pieces);
        long data = summed->top.DATA - start->top.DATA;
        tour_near(data, expected + (long)(2 * all / KIB), 0, "DATA in top grew by %s in all.", tour_size(data));
    }
    long cost = summed->VmRSS - start->VmRSS;
    tour_near(cost, 0, tour_slack(), "All of it costs %s of memory.", tour_size(cost));
    return tour_end();
}
