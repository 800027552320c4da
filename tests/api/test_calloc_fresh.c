// SPDX-License-Identifier: MIT
// What calloc gives of memory that nobody has used is not there until it is touched, whatever was allocated and freed
// before. Memory that was used is cleared, and no more than was used.
#include "bytes.h"
#include "captured.h"
#include "resident.h"

enum { MANY = 60,
    SIZE = 200000 };

static void *dirty(size_t n) {
    void *p = malloc(n);
    CHECK(p);
    memset(p, 0xDD, n);
    return p;
}

// MANY blocks at once, which read as zero: their resident pages, before they are read.
static size_t callocs(size_t n) {
    unsigned char *p[MANY];
    size_t pages = 0;
    for (int i = 0; i < MANY; i++) {
        CHECK((p[i] = calloc(1, n)));
        pages += resident_pages(p[i], n);
    }
    for (int i = 0; i < MANY; i++) {
        CHECK_EQ(bytes_nonzero(p[i], n), n);
        free(p[i]);
    }
    return pages;
}

static size_t pages_of(size_t bytes) { return bytes / (size_t)sysconf(_SC_PAGESIZE) + 1; }

// A new process each: what one test has used is not fresh for the next.
#define APART(test_name)                                    \
    static void test_name##_apart(void *unused);            \
    TEST(test_name) { run_apart(test_name##_apart, NULL); } \
    static void test_name##_apart(void *unused)

APART(behind_a_program_that_did_nothing) {
    (void)unused;
    const size_t pages = callocs(SIZE);
    printf("  %zu pages\n", pages);
    CHECK_LE(pages, 4 * MANY);
}

APART(behind_one_block) {
    (void)unused;
    free(dirty(100));
    CHECK_LE(callocs(SIZE), 4 * MANY);
}

APART(behind_blocks_of_every_size) {
    (void)unused;
    void *p[17];
    size_t used = 0;
    for (int i = 0; i < 17; i++) p[i] = dirty((size_t)5 << i), used += (size_t)5 << i;
    for (int i = 0; i < 17; i++) free(p[i * 5 % 17]);
    // Twice what was used, since sizes are rounded, and each block's first pages.
    CHECK_LE(callocs(SIZE), 2 * pages_of(used) + 4 * MANY);
}

APART(among_blocks_that_stay) {
    (void)unused;
    void *p[200];
    for (int i = 0; i < 200; i++) p[i] = dirty(500);
    for (int i = 0; i < 200; i += 2) free(p[i]);
    CHECK_LE(callocs(SIZE), 2 * pages_of(200 * 512) + 4 * MANY);
}

APART(behind_realloc) {
    (void)unused;
    char *p = dirty(100);
    for (size_t n = 200; n <= 100000; n *= 2) {
        CHECK((p = realloc(p, n)));
        memset(p, 0xDD, n);
    }
    CHECK((p = realloc(p, 50)));
    free(p);
    CHECK_LE(callocs(SIZE), 4 * pages_of(2 * 102400) + 4 * MANY);
}

// One block that comes and goes uses its own memory again, so the rest stays fresh.
APART(again_and_again) {
    (void)unused;
    free(dirty(100));
    for (int i = 0; i < 100; i++) {
        void *p = calloc(1, SIZE);
        CHECK_EQ(bytes_nonzero(p, SIZE), SIZE);
        memset(p, 0xDD, SIZE);
        free(p);
    }
    CHECK_LE(callocs(SIZE), pages_of(4 * SIZE) + 4 * MANY);
}

TEST_MAIN()
