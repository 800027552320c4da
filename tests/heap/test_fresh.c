// SPDX-License-Identifier: MIT
// Blocks that are cut of memory which the process never touched: what that asks of the kernel.
#include <sys/resource.h>

#include "heap_test.h"

static long faults(void) {
    struct rusage used;
    CHECK_EQ(getrusage(RUSAGE_THREAD, &used), 0);
    return used.ru_minflt;
}

// Blocks of each class that a heap begins with, cut page by page (slab_take.c). Returns on how many pages they begin;
// *ret_faults: the page faults of that.
static long cut(long *ret_faults) {
    qy_heap_t *h = qy_heap_new(QY_HEAP_THREAD);
    long pages = 0, before = faults();
    for (unsigned c = 8; c <= QY_CLASS_SMALL; c++) {
        if (h->cls[c] != c) continue;
        while (h->bins[c].nslabs < 3) {
            bool fresh;
            uint32_t count;
            qy_heap_lock(h);
            qy_block_t *b = qy_slab_take(h, c, &count, &fresh);
            qy_heap_unlock(h);
            CHECK(b != NULL);
            // A block that comes alone is nothing yet but its caller's.
            if (fresh) b->link = 1;
            pages++;
        }
    }
    *ret_faults = faults() - before;
    return pages;
}

// A page is not read before it is written: that would be two faults.
TEST(one_fault_for_each_page) {
    if (QY_ASAN || QY_TSAN) TEST_SKIP("needs a build without sanitizers: their own memory faults, too");
    if (qy_os_page_size() != 4096) TEST_SKIP("needs pages of 4096 bytes");
    long n;
    cut(&n);  // tables and code are there after that
    long pages = cut(&n);
    CHECK_GT(pages, 100);
    CHECK_LE(n, pages + pages / 4);
}

TEST_MAIN()
