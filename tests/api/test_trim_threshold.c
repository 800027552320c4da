// SPDX-License-Identifier: MIT
// mallopt(M_TRIM_THRESHOLD, -1): what a program freed stays its own, as for programs that must not wait for page
// faults. The test runs with a short purge_delay.
#include "captured.h"
#include "harness.h"
#include "malloc_names.h"

#define KIB ((size_t)1 << 10)

static size_t resident(void) {
    long all = 0, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f && fscanf(f, "%ld %ld", &all, &pages) == 2);
    fclose(f);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

enum { COUNT = 800 };
static void *block[COUNT];

// Bytes that went back of 80 MiB that are freed, in blocks of two kinds: within a second, or when there are as many.
static size_t given_back(size_t wanted) {
    for (int i = 0; i < COUNT; i++)
        memset(block[i] = malloc(i % 2 ? 190 * KIB : 10 * KIB), 1, i % 2 ? 190 * KIB : 10 * KIB);
    size_t before = resident();
    for (int i = 0; i < COUNT; i++) free(block[i]);
    size_t gone = 0;
    for (int i = 0; i < 10 || (gone < wanted && i < TEST_PATIENCE * 10); i++) {
        usleep(100000);
        free(malloc(100 * KIB));
        size_t after = resident();
        gone = before > after ? before - after : 0;
    }
    return gone;
}

static void by_default(void *unused) {
    (void)unused;
    CHECK_GT(given_back(61 * 1024 * KIB), 60 * 1024 * KIB);
}
static void never(void *unused) {
    (void)unused;
    CHECK_EQ(mallopt(M_TRIM_THRESHOLD, -1), 1);
    CHECK_LT(given_back(0), 4 * 1024 * KIB);
    CHECK_EQ(mallopt(M_TRIM_THRESHOLD, 128 * 1024), 1);
    CHECK_GT(given_back(61 * 1024 * KIB), 60 * 1024 * KIB);
    CHECK_EQ(mallopt(M_TRIM_THRESHOLD, -1), 1);
    CHECK_EQ(malloc_trim(0) | 1, 1);  // asked for, it is done
}
static void as_the_user_says(void *unused) {
    (void)unused;
    CHECK_EQ(mallopt(M_TRIM_THRESHOLD, 128 * 1024), 1);
    CHECK_LT(given_back(0), 4 * 1024 * KIB);
}

TEST(freed_memory) {
    int off = strstr(getenv("QUARRY_CONF"), "purge:off") != NULL;
    run_apart(off ? as_the_user_says : by_default, NULL);
    if (!off) run_apart(never, NULL);
}

TEST_MAIN()
