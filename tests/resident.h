// SPDX-License-Identifier: MIT
// resident.h: how many pages of a range have memory behind them. The kernel's account of the range alone, so other
// programs, other threads and the allocator's own records do not change it.
#ifndef QUARRY_TESTS_RESIDENT_H
#define QUARRY_TESTS_RESIDENT_H

#include <sys/mman.h>
#include <sys/prctl.h>

#include "harness.h"

// One page of 4 KiB that is touched is one page, whatever the system's policy of huge pages.
__attribute__((constructor)) static void resident_by_small_pages(void) { prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); }

// A page at either end counts as a whole.
__attribute__((unused)) static size_t resident_pages(const void *at, size_t bytes) {
    static unsigned char in[1 << 14];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), from = (size_t)at & (page - 1);
    const size_t pages = (from + bytes + page - 1) / page;
    CHECK_LE(pages, sizeof in);
    CHECK_EQ(mincore((char *)(size_t)at - from, pages * page, in), 0);
    size_t found = 0;
    for (size_t i = 0; i < pages; i++) found += in[i] & 1;
    return found;
}

#endif
