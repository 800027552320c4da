// SPDX-License-Identifier: MIT
// 09-advice.c: telling the kernel what will be needed
//
// Idea: A program can tell the kernel what it knows of its memory, by madvise. "I need this no more" gives pages back
// and keeps the addresses: at once (MADV_DONTNEED, the next read finds zeros), or when memory gets short (MADV_FREE,
// and until then a write takes the page back). "I shall need this" brings a file in before it is read (MADV_WILLNEED).
// This is how an allocator returns memory without unmapping it.
//
// Then and now: Part 1 of the series names both kinds of hints. MADV_FREE is younger (Linux 4.5): a process that uses
// it looks larger than it is, for the pages count as resident until somebody else needs them; LazyFree in smaps says
// how many.
#include "tour.h"

#include <stdlib.h>
#include <time.h>

enum { SIZE = 16 << 20 };

static long pages_in_cache(void *p, size_t bytes, unsigned char *which) {
    long count = 0;
    tour_must(mincore(p, bytes, which) == 0, "mincore");
    for (size_t i = 0; i < bytes / tour_page(); i++) count += which[i] & 1;
    return count;
}

int main(void) {
    tour_begin("map.Rss map.LazyFree VmSize");
    int fd = tour_file(SIZE);
    // tour: show
    char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    tour_watch(p, SIZE);
    memset(p, 1, SIZE);
    const tour_numbers *full = tour_step("16 MiB written");

    int can_free = madvise(p, SIZE, MADV_FREE);
    const tour_numbers *lazy = tour_step("MADV_FREE");
    memset(p, 2, SIZE / 4);
    const tour_numbers *taken = tour_step("a quarter written again");

    madvise(p, SIZE, MADV_DONTNEED);
    const tour_numbers *gone = tour_step("MADV_DONTNEED");
    long sum = tour_read_pages(p, SIZE);

    char *f = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
    posix_fadvise(fd, 0, SIZE, POSIX_FADV_DONTNEED);  // out of the kernel's cache
    // tour: hide
    tour_must(p != MAP_FAILED && f != MAP_FAILED, "mmap");
    unsigned char *which = malloc(SIZE / tour_page());
    tour_must(which, "malloc");
    long out = pages_in_cache(f, SIZE, which);
    // tour: show
    // In pieces: of a single request only as much is read as the disk likes to read at once.
    for (size_t at = 0; at < SIZE; at += 128 * KIB) madvise(f + at, 128 * KIB, MADV_WILLNEED);
    // tour: hide
    long pages = SIZE / (long)tour_page(), in = 0;
    for (int i = 0; i < 200 && (in = pages_in_cache(f, SIZE, which)) < pages; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    free(which);
    long size = SIZE / KIB, page = (long)(tour_page() / KIB), slack = 16 * page;
    if (can_free == 0 && lazy->map.LazyFree >= 0) {
        tour_near(lazy->map.LazyFree, size, slack, "After MADV_FREE all of %s may be taken away (LazyFree).",
            tour_size(lazy->map.LazyFree));
        tour_near(lazy->map.Rss, full->map.Rss, slack, "It still counts as resident: %s.", tour_size(lazy->map.Rss));
        tour_near(taken->map.LazyFree, size - size / 4, slack,
            "What was written again is no longer to be taken: LazyFree %s.", tour_size(taken->map.LazyFree));
    } else {
        tour_note("This kernel has no MADV_FREE, or does not say how much of it there is.");
    }
    tour_near(gone->map.Rss, 0, slack, "After MADV_DONTNEED %s are resident.", tour_size(gone->map.Rss));
    tour_near(
        gone->VmSize, full->VmSize, 0, "The addresses are still ours: VmSize %s as before.", tour_size(gone->VmSize));
    tour_near(sum, 0, 0, "The content is gone: a byte of each page adds up to %ld.", sum);
    if (out < pages / 2)
        tour_near(in, pages, pages / 16,
            "Of a file that was out of the cache (%ld pages in it), MADV_WILLNEED brought %ld of %ld pages without "
            "anybody reading.",
            out, in, pages);
    else
        tour_note(
            "This file system keeps files in its cache (%ld of %ld pages), so MADV_WILLNEED has nothing to bring.", out,
            pages);
    return tour_end();
}
