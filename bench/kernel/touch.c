// SPDX-License-Identifier: MIT
// touch.c: what the first touch of fresh memory costs by each way the kernel offers, for bench/kernel/settings.py.
//
//   touch WAY MIB    one line: page faults, and milliseconds of processor time
//
// Each page is written once. small: as the kernel gives it. huge: MADV_HUGEPAGE before (also for 64 KiB pages, where
// they are set to madvise). parts, populate: MADV_POPULATE_WRITE before, 64 KiB at a time or all at once. collapse:
// MADV_COLLAPSE after.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum { PAGE = 4096,
    PART = 64 << 10,
    HUGE = 2 << 20 };

static double milliseconds(const struct rusage *used) {
    return (double)(used->ru_utime.tv_sec + used->ru_stime.tv_sec) * 1e3 +
           (double)(used->ru_utime.tv_usec + used->ru_stime.tv_usec) / 1e3;
}

static void advise(char *at, size_t bytes, int advice) {
    if (!madvise(at, bytes, advice)) return;
    perror("touch: madvise");
    exit(1);
}

static void populate(char *at, size_t bytes, size_t step) {
    for (size_t i = 0; i < bytes; i += step) advise(at + i, step, MADV_POPULATE_WRITE);
}

int main(int argc, char **argv) {
    const char *way = argc == 3 ? argv[1] : "";
    size_t bytes = argc == 3 ? strtoul(argv[2], NULL, 10) << 20 : 0;
    const char *ways[] = {"small", "huge", "parts", "populate", "collapse"};
    int which = -1;
    for (int i = 0; i < 5; i++) which = strcmp(way, ways[i]) ? which : i;
    if (which < 0 || !bytes) {
        fprintf(stderr, "usage: touch small|huge|parts|populate|collapse MIB\n");
        return 2;
    }
    char *all = mmap(NULL, bytes + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) {
        perror("touch: mmap");
        return 1;
    }
    char *at = all + (-(uintptr_t)all & (HUGE - 1));
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    if (which == 1) advise(at, bytes, MADV_HUGEPAGE);
    if (which == 2) populate(at, bytes, PART);
    if (which == 3) populate(at, bytes, bytes);
    for (size_t i = 0; i < bytes; i += PAGE) ((volatile char *)at)[i] = 1;
    if (which == 4) advise(at, bytes, MADV_COLLAPSE);
    getrusage(RUSAGE_SELF, &after);
    printf("%ld %.3f\n", after.ru_minflt - before.ru_minflt, milliseconds(&after) - milliseconds(&before));
    return 0;
}
